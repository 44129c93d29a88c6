/* A parallel map: runs PROGRAM once for each argument, all at once, and prints what each said, in order.
 *
 *     cc -o parallel_map parallel_map.c -lgleaner -lpthread
 *     ./parallel_map wc -l -- *.c
 *
 * All tasks are of one job: they see the files as they were when it began. See gleaner(3). */
#include <errno.h>
#include <gleaner.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* One element of the map. */
struct element {
    gleaner_job *job;
    char **argv; /* the program with its argument */
    int status;  /* as of waitpid(2); -1: see error */
    int error_number;
    char *error;
    gleaner_output output;
};

static void *run(void *argument)
{
    struct element *element = argument;
    gleaner_task task = { .argv = element->argv };
    element->status = gleaner_run(element->job, &task, &element->output);
    if (element->status == -1) {
        element->error_number = errno;
        /* The message is this thread's own, and goes with it. */
        element->error = strdup(gleaner_error());
    }
    return NULL;
}

/* The program's words, and one argument behind them. */
static char **with_argument(char **words, int count, char *argument)
{
    char **argv = calloc(count + 2, sizeof *argv);
    if (argv) {
        memcpy(argv, words, count * sizeof *argv);
        argv[count] = argument;
    }
    return argv;
}

int main(int argc, char **argv)
{
    int divider = 1;
    while (divider < argc && strcmp(argv[divider], "--") != 0)
        divider++;
    int words = divider - 1, count = argc - divider - 1;
    if (words < 1 || count < 1) {
        fprintf(stderr, "usage: %s PROGRAM [WORD...] -- ARGUMENT...\n", argv[0]);
        return 2;
    }
    gleaner_job *job = gleaner_job_open();
    if (!job) {
        fprintf(stderr, "%s: %s\n", argv[0], gleaner_error());
        return 1;
    }
    struct element *elements = calloc(count, sizeof *elements);
    pthread_t *threads = calloc(count, sizeof *threads);
    if (!elements || !threads)
        abort();
    for (int i = 0; i < count; i++) {
        elements[i].job = job;
        elements[i].argv = with_argument(argv + 1, words, argv[divider + 1 + i]);
        if (!elements[i].argv || pthread_create(&threads[i], NULL, run, &elements[i]) != 0)
            abort();
    }
    int failed = 0;
    for (int i = 0; i < count; i++) {
        struct element *element = &elements[i];
        pthread_join(threads[i], NULL);
        if (element->status == -1) {
            fprintf(stderr, "%s: %s (%s)\n", element->argv[words], element->error, strerror(element->error_number));
        } else {
            fwrite(element->output.out, 1, element->output.out_length, stdout);
            fwrite(element->output.err, 1, element->output.err_length, stderr);
        }
        failed += !WIFEXITED(element->status) || WEXITSTATUS(element->status) != 0;
        gleaner_output_free(&element->output);
        free(element->error);
        free(element->argv);
    }
    free(threads);
    free(elements);
    gleaner_job_close(job);
    return failed ? 1 : 0;
}
