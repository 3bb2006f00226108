/* Ample's own functions, beside those of malloc. Link with -lample, or look them up with dlsym in a program that
 * may run on another allocator. */
#ifndef AMPLE_H
#define AMPLE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A block of at least `size` bytes that has its cache lines to itself: for objects that several threads write to. It is
 * aligned to 64 bytes. Give it back with free. NULL and ENOMEM: no memory.
 *
 * After Lever & Boreham (2000), whose conclusion asks for two mechanisms: one for objects of one thread, one for those
 * that are shared. */
void *ample_malloc_shared(size_t size);

/* The version of the library: "MAJOR.MINOR.PATCH". */
const char *ample_version(void);

/* Gives free memory back to the system at once: that of this thread's caches, of idle threads' and free pages. 1: something
 * went back; 0: there was nothing. Without it memory comes back about a second after it was freed. */
int ample_trim(void);

/* Writes how the heap stands as a JSON object into `text`, which has room for `room` bytes, and cuts it off there; it ends in a
 * zero unless `room` is 0. Returns the bytes of the whole, without that zero. Its members: allocated_bytes (handed
 * out, or in threads' caches), active_bytes (in spans of small blocks and in large blocks), large_bytes, large_blocks, room_bytes
 * and room_blocks (free in spans), retained_bytes (free pages that the system has not got back), mapped_bytes (addresses),
 * metadata_bytes. */
size_t ample_statistics_json(char *text, size_t room);

#ifdef __cplusplus
}
#endif

#endif
