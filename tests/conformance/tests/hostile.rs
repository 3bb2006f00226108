//! Where something is missing: system calls, addresses, mappings, memory, a dynamic linker. What this machine does not allow is
//! reported as skipped.

use ample_conformance::cases;

cases!(
    hostile,
    "hostile.c",
    Preloaded,
    libraries["hostile_library.c"],
    [
        a_sandbox_without_madvise_mremap_and_membarrier,
        a_sandbox_that_knows_none_of_them,
        no_more_mappings,
        few_addresses_from_the_beginning,
        strict_overcommit,
        a_control_group_of_64_mib,
        in_64_mib,
        a_library_that_sees_another_malloc,
        a_storm_of_forks,
    ]
);

cases!(
    static_program,
    "static.c",
    Static,
    [the_library_serves_it, threads_and_forks_work, a_setuid_program_ignores_the_environment]
);

cases!(
    static_pie,
    "static.c",
    StaticPie,
    [the_library_serves_it, threads_and_forks_work, a_setuid_program_ignores_the_environment]
);
