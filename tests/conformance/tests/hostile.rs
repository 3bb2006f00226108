//! Where something is missing: system calls, addresses, mappings, memory, a dynamic linker. What this machine does not allow is
//! reported as skipped.

use ample_conformance::cases;

cases!(
    hostile,
    "hostile.c",
    Preloaded,
    libraries["hostile_library.c"],
    [
        a_system_that_moves_the_pages_of_one_mapping_at_a_time,
        pages_of_one_mapping_that_move_and_of_the_next_that_do_not,
        a_system_that_unmaps_a_place_before_it_refuses_to_move_pages_there,
        a_place_that_another_takes_while_pages_were_to_move_there,
        no_more_mappings,
        few_addresses_from_the_beginning,
        strict_overcommit,
        a_control_group_of_64_mib,
        in_64_mib,
        a_library_bound_to_itself_first,
        a_library_that_sees_another_malloc,
        a_library_that_sees_another_malloc_with_few_addresses,
        a_library_that_sees_another_malloc_with_few_addresses_from_the_beginning,
        a_library_that_sees_another_malloc_with_locked_memory,
        a_storm_of_forks,
    ]
);

cases!(
    filters,
    "filters.c",
    [
        a_sandbox_without_madvise_mremap_and_membarrier,
        a_sandbox_that_knows_none_of_them,
        a_sandbox_that_ends_services_for_calls_that_they_do_not_need,
        such_a_sandbox_without_files,
    ]
);

cases!(
    limits,
    "limits.c",
    Preloaded,
    [
        few_addresses_from_now_on,
        few_addresses_from_now_on_by_another_hand,
        few_addresses_from_now_on_in_several_threads,
        all_memory_is_locked,
        all_memory_is_locked_from_now_on,
        later_memory_is_locked,
        memory_is_locked_where_little_may_be,
        memory_that_is_locked_as_it_is_freed_comes_back,
        memory_that_is_free_stays_where_all_is_locked,
    ]
);

cases!(
    static_program,
    "static.c",
    Static,
    [
        the_library_serves_it,
        threads_and_forks_work,
        a_setuid_program_ignores_the_environment,
        libraries_can_be_opened,
        stacks_are_given_up_while_memory_waits_to_come_back,
        threads_that_never_ask_for_memory_end,
        the_helper_is_started,
    ]
);

cases!(
    static_pie,
    "static.c",
    StaticPie,
    [
        the_library_serves_it,
        threads_and_forks_work,
        a_setuid_program_ignores_the_environment,
        libraries_can_be_opened,
        stacks_are_given_up_while_memory_waits_to_come_back,
        threads_that_never_ask_for_memory_end,
        the_helper_is_started,
    ]
);

cases!(
    static_malloc,
    "static.c",
    Archive,
    [
        the_library_serves_it,
        threads_and_forks_work,
        a_setuid_program_ignores_the_environment,
        libraries_can_be_opened,
        stacks_are_given_up_while_memory_waits_to_come_back,
        threads_that_never_ask_for_memory_end,
        the_helper_is_started,
    ]
);

cases!(static_cxx, "static.cc", Static, [containers_threads_and_exceptions_work, too_much_is_bad_alloc]);

cases!(
    static_pie_cxx,
    "static.cc",
    StaticPie,
    [containers_threads_and_exceptions_work, too_much_is_bad_alloc]
);

/// It opens them bound to themselves first, and they free what the C library allocates for them.
#[test]
fn php_runs_with_its_extensions() {
    const PROGRAM: &str = r##"
        $maps = file_get_contents("/proc/self/maps");
        preg_match_all("#/php/.*[.]so$#m", $maps, $extensions);
        for ($i = 0; $i < 1000; $i++) { $texts["key $i"] = str_repeat(md5("$i"), $i); }
        ksort($texts);
        echo count(array_unique($extensions[0])), " ", str_contains($maps, "libample.so") ? "served" : "alone", " ", strlen(implode($texts));
    "##;
    let Some(told) = ample_conformance::installed("php", &["-r", PROGRAM], env!("CARGO_TARGET_TMPDIR"))
    else {
        return;
    };
    let words = told.split(' ').collect::<Vec<_>>();
    assert_eq!(words[1..], ["served", "15984000"], "{told}");
    assert_ne!(words[0], "0", "PHP is there without any extension that it opens (apt-get install php-cli)");
}
