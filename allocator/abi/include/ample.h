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
 * went back; 0: there was nothing. Without it memory comes back about a second after it was freed. (malloc_trim does the same,
 * but no more often than eight times in a row and then a few times a second: some libraries call it all the time.) */
int ample_trim(void);

/* Writes how the heap stands as a JSON object into `text`, which has room for `room` bytes, and cuts it off there; it ends in a
 * zero unless `room` is 0. Returns the bytes of the whole, without that zero. Its members, in bytes unless they end in
 * _blocks:
 *   allocated_bytes   handed out, or in threads' caches
 *   active_bytes      in spans of small blocks and in large blocks
 *   large_bytes, large_blocks
 *   room_bytes, room_blocks   free in spans of small blocks
 *   retained_bytes    free pages that the system has not got back
 *   resident_bytes    what costs memory, or would if the program touched all of what it has
 *   mapped_bytes      addresses
 *   metadata_bytes    the allocator's own records
 *   held_by_fragmentation_bytes, held_by_caches_bytes, held_to_be_reused_bytes   why memory that nobody uses is not the system's:
 *                     free blocks between live ones, threads' caches, free pages that are not a second old
 *   classes           an array: for each size class in use block_bytes, spans, live_blocks, cached_blocks, room_blocks */
size_t ample_statistics_json(char *text, size_t room);

/* Writes the options that the environment may set as a JSON array of objects: name, kind ("number" or "path"), default, least, most,
 * meaning. As ample_statistics_json otherwise. `docs/options.md` lists them for people. */
size_t ample_options_json(char *text, size_t room);

/* When memory goes back to the system can be set as with glibc: by mallopt, MALLOC_MMAP_THRESHOLD_ and its like, GLIBC_TUNABLES.
 * As long as nobody sets a parameter, freed large blocks are kept for a second, to be used again. Whoever sets one of these
 * ends that:
 *   M_MMAP_THRESHOLD  blocks larger than 32 KiB and, in units of 16 KiB, at least so large go back as soon as they are freed
 *                     (128 KiB if another parameter was set alone); smaller ones are kept as before
 *   M_MMAP_MAX        0: no block goes back so; any other value changes nothing
 *   M_TRIM_THRESHOLD  other free memory stays, however old, until there is more than that of it; then it goes back at once, all but
 *                     M_TOP_PAD of it; -1: it never does, but for malloc_trim and ample_trim
 *   M_TOP_PAD         see there; the heap also grows by so much more than is asked for */

#ifdef __cplusplus
}
#endif

#endif
