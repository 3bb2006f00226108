-- The orders of several shops: each connection adds some, changes, searches and deletes them.
-- Indexes are named in the questions: which one the server would choose differs from run to run.
CREATE DATABASE orders;
USE orders;
CREATE TABLE orders (
  shop INT, id INT, customer INT, state VARCHAR(20), note VARCHAR(600), details JSON,
  PRIMARY KEY (shop, id), KEY customers (shop, customer)
);
DELIMITER //
CREATE PROCEDURE serve(shop INT, first INT, amount INT)
BEGIN
  DECLARE id INT DEFAULT first;
  WHILE id < first + amount DO
    INSERT INTO orders VALUES (
      shop, id, id * 7919 % 997, ELT(id % 4 + 1, 'new', 'paid', 'sent', 'returned'), REPEAT('n', id * 31 % 600),
      JSON_OBJECT('lines', JSON_ARRAY(id, id * 2, id * 3), 'text', REPEAT('d', id % 200)));
    SET id = id + 1;
  END WHILE;
  SET id = first;
  WHILE id < first + amount DO
    SET @question = CONCAT(
      'SELECT GROUP_CONCAT(CONCAT(state, ":", LENGTH(note)) ORDER BY id) INTO @found FROM orders',
      ' FORCE INDEX (customers) WHERE shop = ', shop,
      ' AND customer = ', id * 7919 % 997);
    PREPARE question FROM @question;
    EXECUTE question;
    DEALLOCATE PREPARE question;
    UPDATE orders o FORCE INDEX (PRIMARY) SET note = CONCAT(LEFT(note, 300), LEFT(@found, 300)),
      details = JSON_SET(details, '$.text', REPEAT('e', id % 90)) WHERE o.shop = shop AND o.id = id;
    IF id % 5 = 0 THEN
      DELETE FROM orders WHERE orders.shop = shop AND orders.id = id;
    END IF;
    SET id = id + 1;
  END WHILE;
  SELECT state, COUNT(*), SUM(LENGTH(note)), MAX(CAST(JSON_VALUE(details, '$.lines[2]') AS INT)) FROM orders o FORCE INDEX (PRIMARY)
    WHERE o.shop = shop GROUP BY state ORDER BY state;
  SELECT o.customer, COUNT(*) FROM orders o FORCE INDEX (customers)
    STRAIGHT_JOIN orders p FORCE INDEX (customers) ON p.shop = o.shop AND p.customer = o.customer
    WHERE o.shop = shop GROUP BY o.customer ORDER BY 2 DESC, 1 LIMIT 10;
END //
CREATE PROCEDURE tell()
BEGIN
  SELECT COUNT(*), BIT_XOR(CRC32(CONCAT_WS(',', shop, id, customer, state, note, details))) FROM orders;
END //
