/* Sandboxes: filters of system calls, which refuse some or end the program. A case that this machine does not allow says why and exits with 77. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "check.h"
#include "shortage.h"

/* From now on the system answers these calls with `action`. */
static void filter_calls(unsigned action, const long *calls, unsigned count) {
    struct sock_filter filter[64];
    unsigned length = 0;
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < count; i++) {
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        skip("this system has no seccomp filters: %s", strerror(errno));
    errno = 0;
}

/* From now on the system refuses these calls, madvise among them, with `error`. */
static void refuse(int error, const long *calls, unsigned count) {
    filter_calls(SECCOMP_RET_ERRNO | (unsigned)error, calls, count);
    CHECK(syscall(SYS_madvise, NULL, 0, MADV_DONTNEED) == -1 && errno == error, "the filter does not filter");
}

CASE(a_sandbox_without_madvise_mremap_and_membarrier) {
    const long calls[] = {SYS_madvise, SYS_mremap, SYS_membarrier};
    refuse(EPERM, calls, 3);
    exercise_with_threads();
}

CASE(a_sandbox_that_knows_none_of_them) {
    const long calls[] = {SYS_madvise, SYS_mremap, SYS_membarrier, SYS_prctl};
    refuse(ENOSYS, calls, 4);
    exercise_with_threads();
}

/* Replaces blocks of 5 to 25 MiB at random, of which a twentieth is touched; the resident bytes in the end. */
static size_t replace_long_blocks_that_are_hardly_touched(void) {
    enum { SLOTS = 20, REPLACEMENTS = 600 };
    unsigned char *blocks[SLOTS] = {NULL};
    uint64_t state = 11;
    for (unsigned step = 0; step < REPLACEMENTS; step++) {
        unsigned slot = next_random(&state) % SLOTS;
        size_t size = (5u << 20) + next_random(&state) % (20u << 20);
        free(blocks[slot]);
        blocks[slot] = malloc(size);
        CHECK(blocks[slot] != NULL, "no block of %zu bytes", size);
        memset(blocks[slot], (int)slot, size / 20);
    }
    size_t resident = status_bytes("VmRSS:");
    for (unsigned slot = 0; slot < SLOTS; slot++)
        free(blocks[slot]);
    return resident;
}

/* As services of systemd have it that confine themselves to @system-service without @privileged and @resources: of what an allocator might call, these are left
 * out. Any of them ends the program. What is in memory of long blocks is found out all the same, so that they are put where others were touched. */
CASE(a_sandbox_that_ends_services_for_calls_that_they_do_not_need) {
    const long calls[] = {SYS_mincore,     SYS_mbind,         SYS_set_mempolicy,      SYS_migrate_pages,     SYS_move_pages,
                          SYS_setpriority, SYS_sched_setattr, SYS_sched_setparam,     SYS_sched_setaffinity, SYS_sched_setscheduler,
                          SYS_ioprio_set,  SYS_userfaultfd,   SYS_process_vm_writev,  SYS_perf_event_open,   SYS_bpf};
    filter_calls(SECCOMP_RET_KILL_PROCESS, calls, sizeof calls / sizeof *calls);
    exercise_with_threads();
    size_t resident = replace_long_blocks_that_are_hardly_touched();
    CHECK(resident < 100u << 20, "%zu bytes are resident", resident);
}

/* Nor without /proc, where it cannot be found out. */
CASE(such_a_sandbox_without_files) {
    const long calls[] = {SYS_mincore, SYS_openat};
    filter_calls(SECCOMP_RET_ERRNO | EACCES, &calls[1], 1);
    filter_calls(SECCOMP_RET_KILL_PROCESS, calls, 1);
    exercise_with_threads();
    for (unsigned round = 0; round < 20; round++) {
        unsigned char *block = malloc(8u << 20);
        CHECK(block != NULL, "no block");
        fill(block, 1u << 20, round);
        free(block);
        block = calloc(1, 8u << 20);
        CHECK(block != NULL, "no block of zeros");
        for (size_t i = 0; i < 8u << 20; i++)
            CHECK(block[i] == 0, "byte %zu of a block of zeros is %u", i, block[i]);
        free(block);
    }
}
