/*
 * The interpreter of scripts whose first line needs more than the kernel gives.
 *
 * The kernel passes what stands behind the interpreter as one argument. `#!/usr/bin/env -S A=1 python3 -sE`
 * needs that split, and env may not be there: seal-tree writes `#!.../shebang-exec A=1 /.../python3 -sE`,
 * which the kernel starts as: shebang-exec "A=1 /.../python3 -sE" SCRIPT ARG...
 *
 * The first argument is [-i] [-u NAME]... [NAME=VALUE]... PROGRAM [ARG...], in the words of split.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "split.h"
#include "text.h"
#include "version.h"

#define PROGRAM "shebang-exec"

enum { EXIT_USAGE = 2, EXIT_CANNOT_START = 126, EXIT_NOT_FOUND = 127 };

static int refuse(const char *line, const char *reason)
{
    complain(PROGRAM, "the first line '", line, "' can't be used: ", reason, NULL);
    return EXIT_USAGE;
}

/* Carries out what stands before the program; the index of the program. */
static size_t change_environment(char **words)
{
    size_t i = 0;
    for (; words[i] != NULL && words[i][0] == '-'; i++) {
        if (strcmp(words[i], "-i") == 0)
            clearenv();
        else if (strcmp(words[i], "-u") == 0 && words[i + 1] != NULL)
            unsetenv(words[++i]);
        else
            break;
    }
    for (; words[i] != NULL && strchr(words[i], '=') != NULL; i++)
        putenv(words[i]);
    return i;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        static const char VERSION[] = PROGRAM " " CAPSULE_NATIVE_VERSION "\n";
        return write_all(STDOUT_FILENO, VERSION, sizeof VERSION - 1) ? 0 : 1;
    }
    if (argc < 3) {
        complain(PROGRAM, "it is started by the kernel, from a script's first line", NULL);
        return EXIT_USAGE;
    }
    struct words words;
    const char *reason;
    if (!split_words(argv[1], &words, &reason))
        return refuse(argv[1], reason);
    size_t program = change_environment(words.items == NULL ? (char *[]){ NULL } : words.items);
    if (program >= words.count || words.items[program][0] != '/')
        return refuse(argv[1], "it names no program by an absolute path");

    size_t own = words.count - program;
    size_t passed = (size_t)argc - 2;
    char **arguments = must_allocate((own + passed + 1) * sizeof *arguments);
    memcpy(arguments, words.items + program, own * sizeof *arguments);
    memcpy(arguments + own, argv + 2, passed * sizeof *arguments);
    execv(arguments[0], arguments);
    int error = errno;
    complain(PROGRAM, arguments[0], " can't be started: ", strerror(error), NULL);
    return error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_START;
}
