/*
 * A program that becomes another one: the wrapper behind `bin/python`.
 *
 * The target is fixed when it is compiled, and is started with its own absolute path as argv[0], since
 * CPython finds its standard library from there. A symlink in this place breaks every venv that is made
 * through it, and a shell script leaks PWD and SHLVL and needs a shell.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "preload.h"
#include "text.h"

#ifndef CAPSULE_WRAPPER_TARGET
#error "CAPSULE_WRAPPER_TARGET is not defined: the absolute path of the program to become"
#endif

static char TARGET[] = CAPSULE_WRAPPER_TARGET;

int main(int argc, char **argv)
{
    char *only_name[] = { TARGET, NULL };
    char **arguments = only_name;
    if (argc > 0) {
        argv[0] = TARGET;
        arguments = argv;
    }
    leave_out_foreign_preloads(base_name(TARGET));
    execv(TARGET, arguments);
    int error = errno;
    complain(base_name(TARGET), TARGET, " can't be started: ", strerror(error), NULL);
    return error == ENOENT ? 127 : 126;
}
