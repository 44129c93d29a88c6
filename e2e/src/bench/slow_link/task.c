/* A task of a job that computes by sleeping, so that two CPUs carry many workers.
 *
 *   task LIST LINE SECONDS BYTES OUTPUT
 *
 * Reads the files that line LINE (from 0) of LIST names, sleeps for SECONDS less the CPU time that it has used, and writes
 * BYTES of noise, made from what it read, to OUTPUT. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t hash = 0x9e3779b97f4a7c15u;

static void mix(uint64_t word)
{
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 29;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void read_file(const char *name)
{
    static uint64_t buffer[1 << 15];
    FILE *file = fopen(name, "r");
    size_t count;
    if (!file)
        fail(name);
    setvbuf(file, NULL, _IONBF, 0);
    while ((count = fread(buffer, 1, sizeof buffer, file)) > 0) {
        memset((char *)buffer + count, 0, -count & 7);
        for (size_t at = 0; at < (count + 7) / 8; at++)
            mix(buffer[at]);
    }
    if (ferror(file))
        fail(name);
    fclose(file);
}

static void read_listed(const char *list, long line)
{
    static char text[1 << 16];
    FILE *file = fopen(list, "r");
    if (!file)
        fail(list);
    while (fgets(text, sizeof text, file) && line-- > 0)
        ;
    fclose(file);
    for (char *name = strtok(text, " \n"); name; name = strtok(NULL, " \n"))
        read_file(name);
}

static void compute(double seconds)
{
    struct timespec used, rest;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used))
        fail("clock_gettime");
    seconds -= (double)used.tv_sec + (double)used.tv_nsec / 1e9;
    if (seconds <= 0)
        return;
    rest.tv_sec = (time_t)seconds;
    rest.tv_nsec = (long)((seconds - (double)rest.tv_sec) * 1e9);
    while (nanosleep(&rest, &rest))
        ;
}

static void write_noise(const char *name, long bytes)
{
    FILE *file = fopen(name, "w");
    if (!file)
        fail(name);
    for (long at = 0; at < bytes; at += 8) {
        mix((uint64_t)at);
        fwrite(&hash, 1, bytes - at < 8 ? (size_t)(bytes - at) : 8, file);
    }
    if (fclose(file))
        fail(name);
}

int main(int count, char **words)
{
    if (count != 6) {
        fprintf(stderr, "usage: task LIST LINE SECONDS BYTES OUTPUT\n");
        return 2;
    }
    mix((uint64_t)atol(words[2]));
    read_listed(words[1], atol(words[2]));
    compute(atof(words[3]));
    write_noise(words[5], atol(words[4]));
    return 0;
}
