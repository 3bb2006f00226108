/* What glibc's malloc.h and dlfcn.h declare and musl's do not. The library under test defines the functions: programs for musl are linked so that
 * they may be missing then (`cargo xtask musl`). */
#ifndef GLIBC_NAMES_H
#define GLIBC_NAMES_H

#include <stddef.h>
#include <stdio.h>

#define M_MXFAST 1
#define M_TRIM_THRESHOLD -1
#define M_TOP_PAD -2
#define M_MMAP_THRESHOLD -3
#define M_MMAP_MAX -4
#define M_CHECK_ACTION -5
#define M_PERTURB -6
#define M_ARENA_TEST -7
#define M_ARENA_MAX -8

#define RTLD_DEEPBIND 8

struct mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

void *pvalloc(size_t);
struct mallinfo mallinfo(void);
struct mallinfo2 mallinfo2(void);
int mallopt(int, int);
int malloc_info(int, FILE *);
void malloc_stats(void);
int malloc_trim(size_t);

#endif
