#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Of each stream; what comes later is read and dropped, so that the program doesn't wait. */
enum { KEPT = 1 << 20, EXEC_FAILED = 127 };

static int64_t now_milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void become(const char *const *argv, int folder, int output, int errors, int report)
{
    static char LOCALE[] = "LC_ALL=C";
    char *environment[] = { LOCALE, NULL };
    setpgid(0, 0);
    if (folder >= 0 && fchdir(folder) != 0) {
        int reason = errno;
        write_all(report, &reason, sizeof reason);
        _exit(EXEC_FAILED);
    }
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO);
    else
        close(STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    /* execve changes nothing; its type is older than const. */
    execve(argv[0], (char *const *)(uintptr_t)argv, environment);
    int error = errno;
    write_all(report, &error, sizeof error);
    _exit(EXEC_FAILED);
}

/* Reads what is there; false at the stream's end. */
static bool drain(int fd, struct text *kept)
{
    char buffer[4096];
    ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN;
    if (got > 0 && kept->length < KEPT)
        text_add(kept, buffer, (size_t)got);
    return got > 0;
}

/* Reads both streams until they end; false when the time is over first. */
static bool collect(struct child *child, int output, int errors, int64_t deadline)
{
    struct pollfd streams[] = { { .fd = output, .events = POLLIN }, { .fd = errors, .events = POLLIN } };
    while (streams[0].fd >= 0 || streams[1].fd >= 0) {
        int64_t left = deadline - now_milliseconds();
        if (left <= 0)
            return false;
        if (poll(streams, 2, (int)left) < 0 && errno != EINTR)
            return false;
        if (streams[0].revents != 0 && !drain(output, &child->output))
            streams[0].fd = -1;
        if (streams[1].revents != 0 && !drain(errors, &child->errors))
            streams[1].fd = -1;
    }
    return true;
}

static void wait_for(struct child *child, pid_t process)
{
    int status = 0;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR)
        continue;
    child->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void child_run(struct child *child, const char *const *argv, int folder, int seconds)
{
    int pipes[3][2] = { { -1, -1 }, { -1, -1 }, { -1, -1 } };
    *child = (struct child){ .end = CHILD_NOT_STARTED };
    bool piped = true;
    for (int i = 0; i < 3; i++)
        piped &= pipe2(pipes[i], O_CLOEXEC) == 0;
    pid_t process = piped ? fork() : -1;
    if (process < 0) {
        child->status = errno;
    } else if (process == 0) {
        become(argv, folder, pipes[0][1], pipes[1][1], pipes[2][1]);
    } else {
        setpgid(process, process);
        for (int i = 0; i < 3; i++) {
            close(pipes[i][1]);
            pipes[i][1] = -1;
        }
        /* The third pipe closes by itself when exec succeeds. */
        int error;
        ssize_t got;
        while ((got = read(pipes[2][0], &error, sizeof error)) < 0 && errno == EINTR)
            continue;
        bool started = got == 0;
        bool in_time = collect(child, pipes[0][0], pipes[1][0], now_milliseconds() + 1000 * (int64_t)seconds);
        if (!in_time)
            kill(-process, SIGKILL);
        wait_for(child, process);
        child->end = !started ? CHILD_NOT_STARTED : in_time ? CHILD_ENDED : CHILD_TOO_LONG;
        if (!started)
            child->status = error;
    }
    for (int i = 0; i < 3; i++)
        for (int end = 0; end < 2; end++)
            if (pipes[i][end] >= 0)
                close(pipes[i][end]);
}

void child_free(struct child *child)
{
    text_free(&child->output);
    text_free(&child->errors);
}
