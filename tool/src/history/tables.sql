CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    started TEXT NOT NULL,
    host TEXT NOT NULL,
    -- The kind of machine, in a line; the whole record as JSON.
    machine TEXT NOT NULL,
    machine_record TEXT NOT NULL,
    -- Version and build of the allocator that all others are held against.
    baseline TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    command TEXT NOT NULL,
    preset TEXT NOT NULL,
    seed TEXT NOT NULL,
    blocks INTEGER NOT NULL,
    interrupted INTEGER NOT NULL,
    folder TEXT NOT NULL,
    -- What tells runs apart that began in the same second on the same host; empty where that was not kept.
    identity TEXT NOT NULL
);
CREATE TABLE cells (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    workload TEXT NOT NULL,
    threads INTEGER NOT NULL,
    -- Parameters that were set, as JSON.
    settings TEXT NOT NULL,
    -- Parameters that were in force, those that nobody set included, as JSON; {} where that was not kept.
    parameters TEXT NOT NULL,
    -- What a program of the user's was asked to do; empty for other workloads, and where that was not kept.
    task TEXT NOT NULL,
    allocator TEXT NOT NULL,
    -- Version, commit, build id.
    build TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    operations_per_second REAL NOT NULL,
    peak_rss_bytes REAL NOT NULL,
    -- Multiples of the baseline's; null for the baseline.
    throughput REAL,
    throughput_low REAL,
    throughput_high REAL,
    peak_rss REAL,
    peak_rss_low REAL,
    peak_rss_high REAL
);
CREATE INDEX cells_by_row ON cells (workload, allocator, threads);
