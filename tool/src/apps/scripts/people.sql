CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, city TEXT, score REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ROWS)
    INSERT INTO person SELECT i, printf('name %d', i * 7919 % 100003), 'city ' || i % 997, i * 0.5 FROM n;
CREATE INDEX by_name ON person(name);
CREATE INDEX by_city ON person(city, score);
SELECT city, count(*), sum(score), length(group_concat(name)) FROM person GROUP BY city ORDER BY city LIMIT 50;
SELECT count(*) FROM person p JOIN person q ON p.name = q.name WHERE p.city = 'city 5';
SELECT sum(length(json_extract(json_object('id', id, 'name', name), '$.name'))) FROM person;
DELETE FROM person WHERE id % 3 = 0;
VACUUM;
SELECT 'left: ' || count(*) FROM person;
PRAGMA integrity_check;
