/* Runs a program to its end, or to its time's, and keeps what it says. */
#ifndef CAPSULE_CHILD_H
#define CAPSULE_CHILD_H

#include "text.h"

enum child_end { CHILD_ENDED, CHILD_NOT_STARTED, CHILD_TOO_LONG };

struct child {
    enum child_end end;
    int status;         /* exit status; 128 + N for signal N; errno for CHILD_NOT_STARTED */
    struct text output; /* the first part of each stream */
    struct text errors;
};

/*
 * The environment is empty but for LC_ALL=C; standard input is empty. `folder` is an open folder to work in, or -1.
 * child_free releases what was kept.
 */
void child_run(struct child *child, const char *const *argv, int folder, int seconds);
void child_free(struct child *child);

#endif
