CREATE TABLE new_runs (
    id INTEGER PRIMARY KEY,
    started TEXT NOT NULL,
    host TEXT NOT NULL,
    machine TEXT NOT NULL,
    machine_record TEXT NOT NULL,
    baseline TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    command TEXT NOT NULL,
    preset TEXT NOT NULL,
    seed TEXT NOT NULL,
    blocks INTEGER NOT NULL,
    interrupted INTEGER NOT NULL,
    folder TEXT NOT NULL,
    identity TEXT NOT NULL
);
INSERT INTO new_runs SELECT id, started, host, machine, machine_record, baseline, tool_version, command, preset, seed,
    blocks, interrupted, folder, '' FROM runs;
DROP TABLE runs;
ALTER TABLE new_runs RENAME TO runs;
ALTER TABLE cells ADD COLUMN task TEXT NOT NULL DEFAULT '';
