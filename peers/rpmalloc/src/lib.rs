//! rpmalloc as a preload library. All of it is in the build script.
