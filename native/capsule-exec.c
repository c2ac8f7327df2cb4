/*
 * capsule-exec [--setup-root DIR] [--] COMMAND [ARG...]
 *
 * Runs a command with the capsule's tools on PATH while a harness is being set up. With a setup root (the
 * option, or CAPSULE_SETUP_ROOT) the package managers install into it: it is npm's global prefix, and a
 * venv where the capsule has Python. Without one only PATH changes.
 *
 * It becomes the command by exec, so exit status, signals, standard input and output are the command's own.
 * Exit status of its own: 2 wrong usage, 125 the setup root can't be prepared, 126 the command can't be
 * started, 127 it isn't there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload.h"
#include "text.h"
#include "version.h"

#define PROGRAM "capsule-exec"

/* What a shell assumes where an image sets no PATH. */
#define SYSTEM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { EXIT_USAGE = 2, EXIT_SETUP = 125, EXIT_CANNOT_START = 126, EXIT_NOT_FOUND = 127 };

static const char USAGE[] =
    "Usage: capsule-exec [--setup-root DIR] [--] COMMAND [ARG...]\n"
    "\n"
    "Runs COMMAND with the capsule's tools on PATH, for setting a harness up.\n"
    "\n"
    "  --setup-root DIR  install into DIR (default: CAPSULE_SETUP_ROOT): npm's global prefix, and a\n"
    "                    venv where the capsule has Python; made when it is missing\n"
    "  --help            print this text\n"
    "  --version         print the version\n"
    "\n"
    "The capsule: " CAPSULE_ROOT "\n";

struct options {
    const char *setup_root; /* NULL: none */
    char **command;
};

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static void set(const char *name, const char *value)
{
    if (setenv(name, value, 1) != 0) {
        complain(PROGRAM, "the environment can't be changed: ", strerror(errno), NULL);
        exit(EXIT_SETUP);
    }
}

/* Sets NAME to DIR/REST. */
static void set_path(const char *name, const char *dir, const char *rest)
{
    char *value = join(dir, rest, NULL);
    set(name, value);
    free(value);
}

/*
 * Whether an environment entry sets the npm option `name` (lower case, with underscores). npm reads them in
 * any case and takes - for _; of several spellings the last in the environment wins.
 */
static bool sets_npm_option(const char *entry, const char *name)
{
    static const char PREFIX[] = "npm_config_";
    if (strncasecmp(entry, PREFIX, sizeof PREFIX - 1) != 0)
        return false;
    entry += sizeof PREFIX - 1;
    for (; *name != '\0'; name++, entry++) {
        char byte = *entry == '-' ? '_' : *entry;
        if (strncasecmp(&byte, name, 1) != 0)
            return false;
    }
    return *entry == '=';
}

/* Sets npm's option to DIR/REST, whatever spellings of it the environment has. */
static void set_npm_option(const char *name, const char *dir, const char *rest)
{
    extern char **environ;
    char **kept = environ;
    for (char **entry = environ; *entry != NULL; entry++)
        if (!sets_npm_option(*entry, name))
            *kept++ = *entry;
    *kept = NULL;
    char *variable = join("npm_config_", name, NULL);
    set_path(variable, dir, rest);
    free(variable);
}

/* PATH: the setup root's bin, the capsule's, then what was there, without a second copy of these two. */
static void set_search_path(const char *setup_root)
{
    static const char CAPSULE_BIN[] = CAPSULE_ROOT "/bin";
    struct text path = { 0 };
    char *setup_bin = setup_root == NULL ? NULL : join(setup_root, "/bin", NULL);
    if (setup_bin != NULL)
        text_add_strings(&path, setup_bin, ":", NULL);
    text_add_string(&path, CAPSULE_BIN);

    const char *old = getenv("PATH");
    if (old == NULL || *old == '\0')
        old = SYSTEM_PATH;
    while (*old != '\0') {
        size_t length = strcspn(old, ":");
        char *entry = must_duplicate(old, length);
        if (strcmp(entry, CAPSULE_BIN) != 0 && (setup_bin == NULL || strcmp(entry, setup_bin) != 0))
            text_add_strings(&path, ":", entry, NULL);
        free(entry);
        old += length;
        old += *old == ':';
    }
    set("PATH", path.bytes);
    text_free(&path);
    free(setup_bin);
}

/* Makes a folder and those above it that are missing. */
static void make_folder(const char *path)
{
    char *copy = must_duplicate(path, strlen(path));
    for (char *slash = strchr(copy + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(copy, 0755);
        *slash = '/';
    }
    struct stat info;
    if (mkdir(copy, 0755) != 0 && (errno != EEXIST || stat(copy, &info) != 0 || !S_ISDIR(info.st_mode))) {
        int error = errno == EEXIST ? ENOTDIR : errno;
        complain(PROGRAM, "the folder ", path, " can't be made: ", strerror(error), NULL);
        exit(EXIT_SETUP);
    }
    free(copy);
}

static void make_subfolder(const char *dir, const char *rest)
{
    char *path = join(dir, rest, NULL);
    make_folder(path);
    free(path);
}

/* The setup root as an absolute path without a slash at its end; ends the program where it can't be one. */
static char *absolute_setup_root(const char *given)
{
    struct text path = { 0 };
    if (given[0] != '/') {
        char *here = getcwd(NULL, 0);
        if (here == NULL) {
            complain(PROGRAM, "the working folder has no path: ", strerror(errno), NULL);
            exit(EXIT_SETUP);
        }
        text_add_strings(&path, here, "/", NULL);
        free(here);
    }
    text_add_string(&path, given);
    while (path.length > 0 && path.bytes[path.length - 1] == '/')
        text_cut(&path, path.length - 1);

    const char *reason = NULL;
    if (path.length == 0)
        reason = "the root of the file system would be overwritten";
    else if (strchr(path.bytes, ':') != NULL)
        reason = "a folder with ':' in its name can't stand in PATH";
    else if (strcmp(path.bytes, CAPSULE_ROOT) == 0 || is_below(path.bytes, CAPSULE_ROOT))
        reason = "the capsule itself is never written to";
    if (reason != NULL) {
        complain(PROGRAM, "'", given, "' can't be the setup root: ", reason, NULL);
        exit(EXIT_USAGE);
    }
    return path.bytes;
}

/* Runs the capsule's `python -m venv`, its output on standard error; true when it succeeded. */
static bool run_venv(const char *setup_root)
{
    pid_t child = fork();
    if (child == 0) {
        /* Standard output is the command's alone. */
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execl(CAPSULE_ROOT "/bin/python", CAPSULE_ROOT "/bin/python", "-m", "venv", setup_root, (char *)NULL);
        _exit(EXIT_NOT_FOUND);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ensurepip comes last when a venv is made: where pip is, the venv is whole. */
static bool is_whole_venv(const char *setup_root)
{
    static const char *const PARTS[] = { "/pyvenv.cfg", "/bin/python", "/bin/pip" };
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        char *path = join(setup_root, PARTS[i], NULL);
        bool there = exists(path);
        free(path);
        if (!there)
            return false;
    }
    return true;
}

/* Makes the setup root a venv of the capsule's Python, once, also when two ask for it at the same time. */
static void make_venv(const char *setup_root)
{
    if (is_whole_venv(setup_root))
        return;
    int folder = open(setup_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || flock(folder, LOCK_EX) != 0) {
        complain(PROGRAM, "the setup root ", setup_root, " can't be locked: ", strerror(errno), NULL);
        exit(EXIT_SETUP);
    }
    if (!is_whole_venv(setup_root) && !run_venv(setup_root)) {
        complain(PROGRAM, "the setup root ", setup_root, " can't be made a venv: '" CAPSULE_ROOT
                 "/bin/python -m venv ", setup_root, "' failed", NULL);
        exit(EXIT_SETUP);
    }
    close(folder);
}

/* Takes variables away by which an image would lead the package managers elsewhere, or break them. */
static void leave_out(const char *const *names)
{
    for (; *names != NULL; names++)
        unsetenv(*names);
}

static void prepare_node(const char *setup_root)
{
    leave_out((const char *const[]){ "NODE_OPTIONS", NULL });
    /* npm looks at the global folder before it makes it. */
    make_subfolder(setup_root, "/lib/node_modules");
    set_npm_option("prefix", setup_root, "");
    set_npm_option("cache", setup_root, "/.cache/npm");
    /* Node would put compiled code of the capsule's own npm beside it or under /tmp. */
    set("NODE_DISABLE_COMPILE_CACHE", "1");
}

static void prepare_python(const char *setup_root)
{
    leave_out((const char *const[]){ "PYTHONHOME", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONEXECUTABLE", "PIP_TARGET",
                                     "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", NULL });
    make_venv(setup_root);
    set("VIRTUAL_ENV", setup_root);
    set_path("PIP_CACHE_DIR", setup_root, "/.cache/pip");
}

static void prepare_uv(const char *setup_root)
{
    leave_out((const char *const[]){ "CONDA_PREFIX", "UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_PROJECT_ENVIRONMENT", NULL });
    /* uv finds out the libc by running a program of the image, and there may be none. */
    set("UV_LIBC", ends_with(CAPSULE_ROOT, "-musl") ? "musl" : "gnu");
    set("UV_PYTHON_PREFERENCE", "only-system");
    set_path("UV_CACHE_DIR", setup_root, "/.cache/uv");
    set_path("UV_TOOL_DIR", setup_root, "/share/uv/tools");
    set_path("UV_TOOL_BIN_DIR", setup_root, "/bin");
}

static void prepare(const char *setup_root)
{
    make_subfolder(setup_root, "/bin");
    set("CAPSULE_SETUP_ROOT", setup_root);
    if (exists(CAPSULE_ROOT "/bin/node"))
        prepare_node(setup_root);
    if (exists(CAPSULE_ROOT "/bin/python"))
        prepare_python(setup_root);
    if (exists(CAPSULE_ROOT "/bin/uv"))
        prepare_uv(setup_root);
}

/* Says why a command that exec refused can't be started, and returns the exit status for it. */
static int explain(const char *command, const char *path, int error)
{
    if (path == NULL) {
        complain(PROGRAM, "'", command, "' is not on PATH: ", getenv("PATH"), NULL);
        return EXIT_NOT_FOUND;
    }
    if (error == ENOENT && exists(path)) {
        complain(PROGRAM, "'", path, "' can't be started: the interpreter or loader that it names isn't here; "
                 "seal the setup root first", NULL);
        return EXIT_CANNOT_START;
    }
    if (error == ENOEXEC) {
        complain(PROGRAM, "'", path, "' can't be started: it is neither an ELF file for this machine nor a "
                 "script with a #! line", NULL);
        return EXIT_CANNOT_START;
    }
    complain(PROGRAM, "'", path, "' can't be started: ", strerror(error), NULL);
    return error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_CANNOT_START;
}

/* Becomes the command; returns the exit status when that fails. */
static int become(char **command)
{
    if (strchr(command[0], '/') != NULL) {
        execv(command[0], command);
        return explain(command[0], command[0], errno);
    }
    char *refused = NULL;
    int refusal = 0;
    for (const char *entry = getenv("PATH"); entry != NULL && *entry != '\0';) {
        size_t length = strcspn(entry, ":");
        char *dir = length == 0 ? must_duplicate(".", 1) : must_duplicate(entry, length);
        char *path = join(dir, "/", command[0], NULL);
        free(dir);
        execv(path, command);
        int error = errno;
        /* The first file of that name is the one to talk about, whatever comes later on PATH. */
        if (refused == NULL && exists(path)) {
            refused = path;
            refusal = error;
        } else {
            free(path);
        }
        entry += length;
        entry += *entry == ':';
    }
    return explain(command[0], refused, refusal);
}

static void wrong_usage(const char *what, const char *value)
{
    complain(PROGRAM, what, value, "\nTry 'capsule-exec --help'.", NULL);
    exit(EXIT_USAGE);
}

static void print_and_exit(const char *text)
{
    exit(write_all(STDOUT_FILENO, text, strlen(text)) ? 0 : 1);
}

static struct options read_options(char **argv)
{
    struct options options = { .setup_root = getenv("CAPSULE_SETUP_ROOT") };
    char **argument = argv;
    for (; *argument != NULL && (*argument)[0] == '-'; argument++) {
        if (strcmp(*argument, "--") == 0) {
            argument++;
            break;
        }
        if (strcmp(*argument, "--help") == 0)
            print_and_exit(USAGE);
        else if (strcmp(*argument, "--version") == 0)
            print_and_exit(PROGRAM " " CAPSULE_NATIVE_VERSION "\n");
        else if (starts_with(*argument, "--setup-root="))
            options.setup_root = *argument + strlen("--setup-root=");
        else if (strcmp(*argument, "--setup-root") == 0 && argument[1] != NULL)
            options.setup_root = *++argument;
        else if (strcmp(*argument, "--setup-root") == 0)
            wrong_usage("--setup-root needs a folder", "");
        else
            wrong_usage("no such option: ", *argument);
        if (options.setup_root != NULL && options.setup_root[0] == '\0')
            wrong_usage("--setup-root needs a folder", "");
    }
    if (*argument == NULL)
        wrong_usage("a command is missing", "");
    if (options.setup_root != NULL && options.setup_root[0] == '\0')
        options.setup_root = NULL;
    options.command = argument;
    return options;
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc > 0 ? argv + 1 : argv);
    leave_out_foreign_preloads(PROGRAM);
    char *setup_root = options.setup_root == NULL ? NULL : absolute_setup_root(options.setup_root);
    if (setup_root != NULL)
        prepare(setup_root);
    set_search_path(setup_root);
    return become(options.command);
}
