/* Gleaner: run commands on other machines as if they ran here. See gleaner(3).
 *
 * All functions block, and may be called from many threads at once. Link with -lgleaner. */
#ifndef GLEANER_H
#define GLEANER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Tasks that see the files as they were when the job was opened, whatever other tasks of it change. */
typedef struct gleaner_job gleaner_job;

#define GLEANER_NO_LOCAL 1u  /* fail rather than run the task on this machine */
#define GLEANER_NO_REMOTE 2u /* run the task on this machine */

/* A task. Set what is not used to zero: (gleaner_task){ .argv = words }. */
typedef struct gleaner_task {
    char *const *argv;  /* program and arguments, ended by NULL; no shell reads them */
    char *const *env;   /* changes of the environment, ended by NULL: "NAME=value" sets, "NAME" removes; or NULL */
    const char *folder; /* working directory, absolute; NULL: that of this process */
    const int *streams; /* three descriptors: standard input, output and error; NULL: 0, 1 and 2 of this process */
    unsigned cpus;      /* CPUs that it asks for; 0: one */
    unsigned flags;     /* GLEANER_NO_LOCAL, GLEANER_NO_REMOTE */
} gleaner_task;

/* What a task said. Each text has a NUL behind it that is not counted. Give it to gleaner_output_free. */
typedef struct gleaner_output {
    char *out;
    size_t out_length;
    char *err;
    size_t err_length;
    int ran_here; /* 1: it ran on this machine */
} gleaner_output;

/* Opens a job, with the environment and folder that this process has now. NULL: see gleaner_error. */
gleaner_job *gleaner_job_open(void);

/* Ends all tasks of the job, those that run and those to come. They fail with ECANCELED. */
void gleaner_job_cancel(gleaner_job *job);

/* Closes a job. No task of it may run, and it must not be used again. NULL does nothing. */
void gleaner_job_close(gleaner_job *job);

/* Runs a command on the descriptors 0, 1 and 2 of this process, in a job or (NULL) without one, and waits for its end.
 * Returns its status as waitpid(2) does (WIFEXITED and so on), or -1 with errno: see gleaner_error. */
int remrun(gleaner_job *job, char *const argv[]);

/* The same for a task. If output is not NULL the task's standard input is empty and what it says is returned there. */
int gleaner_run(gleaner_job *job, const gleaner_task *task, gleaner_output *output);

/* Frees what gleaner_run returned. */
void gleaner_output_free(gleaner_output *output);

/* What went wrong in the last call of this thread that failed, in words: what, where, what to do. Valid until this
 * thread's next call. */
const char *gleaner_error(void);

#ifdef __cplusplus
}
#endif

#endif
