/*
 * seal-tree [--json] [--dry-run] [--any-root] ROOT
 *
 * Makes the files below a setup root run by themselves: without the capsule on PATH, in an image with an older C
 * library, another one, or none. See docs/seal-tree.md.
 *
 * Exit status: 0 all that needed sealing is sealed, 1 something isn't, 2 wrong usage or a root that is refused.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "elf_file.h"
#include "sealer.h"
#include "version.h"

#define PROGRAM "seal-tree"
#define SETUP_ROOTS "/tmp/agentcompass-capsule-setups"

enum { EXIT_FAILURES = 1, EXIT_USAGE = 2 };

static const char USAGE[] =
    "Usage: seal-tree [--json] [--dry-run] [--any-root] ROOT\n"
    "\n"
    "Makes scripts, programs and libraries below ROOT run without the capsule on PATH.\n"
    "\n"
    "  --json      print the report as JSON\n"
    "  --dry-run   say what would be done, and write nothing\n"
    "  --any-root  take a ROOT that is not below " SETUP_ROOTS "\n"
    "  --help      print this text\n"
    "  --version   print the version\n"
    "\n"
    "The capsule: " CAPSULE_ROOT "\n";

struct options {
    bool json;
    bool dry_run;
    bool any_root;
    char *root;
};

struct item *items_add(struct items *items, const char *path, const char *python, const struct stat *info)
{
    if (items->count == items->room) {
        items->room = 2 * items->room + 16;
        items->entries = must_grow(items->entries, items->room * sizeof *items->entries);
    }
    struct item *item = &items->entries[items->count++];
    *item = (struct item){
        .path = must_duplicate(path, strlen(path)),
        .python = python == NULL ? NULL : must_duplicate(python, strlen(python)),
        .info = *info,
    };
    return item;
}

void item_free(struct item *item)
{
    free(item->path);
    free(item->python);
    free(item->links);
}

char *absolute_path(const struct sealer *sealer, const char *path)
{
    return join(sealer->tree.root_path, "/", path, NULL);
}

static void dispatch(struct sealer *sealer, const struct candidate *candidate, char **links)
{
    if (elf_has_magic(candidate->input->bytes, candidate->input->held))
        note_elf_file(sealer, candidate, links);
    else
        seal_script(sealer, candidate, links);
}

/* A file with several names waits until all of them are known, so that it is sealed once and stays one file. */
static void visit(void *context, const struct candidate *candidate)
{
    struct sealer *sealer = context;
    if (candidate->info.st_nlink > 1)
        items_add(&sealer->linked, candidate->path, candidate->python, &candidate->info);
    else
        dispatch(sealer, candidate, NULL);
}

static int by_inode(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    if (a->info.st_dev != b->info.st_dev)
        return a->info.st_dev < b->info.st_dev ? -1 : 1;
    if (a->info.st_ino != b->info.st_ino)
        return a->info.st_ino < b->info.st_ino ? -1 : 1;
    return strcmp(a->path, b->path);
}

static void dispatch_linked(struct sealer *sealer)
{
    struct items *linked = &sealer->linked;
    if (linked->count > 0)
        qsort(linked->entries, linked->count, sizeof *linked->entries, by_inode);
    for (size_t first = 0, next; first < linked->count; first = next) {
        const struct item *item = &linked->entries[first];
        for (next = first + 1; next < linked->count; next++)
            if (linked->entries[next].info.st_dev != item->info.st_dev ||
                linked->entries[next].info.st_ino != item->info.st_ino)
                break;
        char **links = must_allocate((next - first) * sizeof *links);
        for (size_t i = first + 1; i < next; i++)
            links[i - first - 1] = linked->entries[i].path;
        struct input input;
        int fd = tree_open(&sealer->tree, item->path, &item->info, &input);
        if (fd >= 0) {
            struct candidate candidate = {
                .path = item->path, .python = item->python, .info = item->info, .input = &input,
            };
            dispatch(sealer, &candidate, links);
            close(fd);
        }
        free(links);
    }
}

static const char *if_there(const char *path)
{
    return access(path, X_OK) == 0 ? path : NULL;
}

/* The capsule's Python says its minor version by its program's name; the first is taken. */
static char *python_name(void)
{
    DIR *folder = opendir(CAPSULE_ROOT "/runtime/python/bin");
    char *name = NULL;
    const struct dirent *entry;
    while (folder != NULL && name == NULL && (entry = readdir(folder)) != NULL) {
        const char *minor = entry->d_name + strlen("python3.");
        if (starts_with(entry->d_name, "python3.") && *minor != '\0' && minor[strspn(minor, "0123456789")] == '\0')
            name = must_duplicate(entry->d_name, strlen(entry->d_name));
    }
    if (folder != NULL)
        closedir(folder);
    return name;
}

static void find_interpreters(struct interpreters *interpreters, const char *python)
{
    *interpreters = (struct interpreters){
        .root = CAPSULE_ROOT,
        .node = if_there(CAPSULE_ROOT "/bin/node"),
        .python = if_there(CAPSULE_ROOT "/bin/python3"),
        .python_name = python,
        .bash = if_there(CAPSULE_ROOT "/libexec/bash"),
        .splitter = if_there(CAPSULE_ROOT "/libexec/shebang-exec"),
        .line_limit = script_line_limit(),
    };
}

static void refuse(const char *root, const char *reason)
{
    complain(PROGRAM, "'", root, "' is refused: ", reason, NULL);
    exit(EXIT_USAGE);
}

static bool is_symlink(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

/* Opens the root, if it may be sealed; `*path` is its path without symlinks. */
static int open_root(struct options *options, char **path)
{
    char *root = options->root;
    for (size_t length = strlen(root); length > 1 && root[length - 1] == '/'; length--)
        root[length - 1] = '\0';
    if (is_symlink(root))
        refuse(root, "it is a symlink; name the folder itself");
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *path = fd < 0 ? NULL : realpath(root, NULL);
    if (*path == NULL)
        refuse(root, strerror(errno));
    char *capsule = realpath(CAPSULE_ROOT, NULL);
    if (capsule != NULL && (strcmp(*path, capsule) == 0 || is_below(*path, capsule)))
        refuse(root, "it belongs to the capsule, which is never written to");
    free(capsule);
    if (!options->any_root) {
        char *roots = is_symlink(SETUP_ROOTS) ? NULL : realpath(SETUP_ROOTS, NULL);
        if (roots == NULL || !is_below(*path, roots))
            refuse(root, "it is not below " SETUP_ROOTS "; --any-root takes any folder");
        free(roots);
    }
    return fd;
}

static void wrong_usage(const char *what, const char *value)
{
    complain(PROGRAM, what, value, "\nTry 'seal-tree --help'.", NULL);
    exit(EXIT_USAGE);
}

static void print_and_exit(const char *text)
{
    exit(write_all(STDOUT_FILENO, text, strlen(text)) ? 0 : EXIT_FAILURES);
}

static struct options read_options(char **arguments)
{
    struct options options = { 0 };
    bool only_names = false;
    for (; *arguments != NULL; arguments++) {
        char *argument = *arguments;
        bool name = only_names || argument[0] != '-';
        if (name && options.root != NULL)
            wrong_usage("one ROOT at a time: ", argument);
        else if (name)
            options.root = argument;
        else if (strcmp(argument, "--") == 0)
            only_names = true;
        else if (strcmp(argument, "--json") == 0)
            options.json = true;
        else if (strcmp(argument, "--dry-run") == 0)
            options.dry_run = true;
        else if (strcmp(argument, "--any-root") == 0)
            options.any_root = true;
        else if (strcmp(argument, "--help") == 0)
            print_and_exit(USAGE);
        else if (strcmp(argument, "--version") == 0)
            print_and_exit(PROGRAM " " CAPSULE_NATIVE_VERSION "\n");
        else
            wrong_usage("no such option: ", argument);
    }
    if (options.root == NULL || options.root[0] == '\0')
        wrong_usage("ROOT is missing", "");
    return options;
}

/* A level of the tree takes a file descriptor: as many as may be had. */
static void raise_limits(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void seal(struct sealer *sealer)
{
    char *name = python_name();
    find_interpreters(&sealer->interpreters, name);
    tree_walk(&sealer->tree);
    dispatch_linked(sealer);
    seal_elf_files(sealer);
    for (size_t i = 0; i < sealer->linked.count; i++)
        item_free(&sealer->linked.entries[i]);
    free(sealer->linked.entries);
    free(name);
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc > 0 ? argv + 1 : argv);
    struct sealer sealer = { 0 };
    char *root_path;
    int root = open_root(&options, &root_path);
    raise_limits();
    replace_handle_signals();
    /* Two runs in one tree would take each other's temporary files for leftovers; where locks don't work, so be it. */
    while (flock(root, options.dry_run ? LOCK_SH : LOCK_EX) != 0 && errno == EINTR)
        continue;
    sealer.report.root = options.root;
    sealer.report.dry_run = options.dry_run;
    sealer.tree = (struct tree){
        .root = root,
        .root_path = root_path,
        .dry_run = options.dry_run,
        .report = &sealer.report,
        .visit = visit,
        .context = &sealer,
    };
    if (stat(CAPSULE_ROOT, &sealer.tree.capsule) != 0) {
        complain(PROGRAM, "the capsule isn't at " CAPSULE_ROOT ": ", strerror(errno), NULL);
        return EXIT_FAILURES;
    }
    seal(&sealer);
    bool good = report_print(&sealer.report, options.json);
    if (!good)
        complain(PROGRAM, "the report can't be written: ", strerror(errno), NULL);
    good = good && sealer.report.lists[REPORT_FAILURES].count == 0;
    report_free(&sealer.report);
    free(root_path);
    close(root);
    return good ? 0 : EXIT_FAILURES;
}
