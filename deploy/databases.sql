-- Runs once, when the Postgres volume is new. Three databases, one owner each: no service can read another's.
-- The services make and migrate their own schemas.
CREATE ROLE orders LOGIN PASSWORD 'orders';
CREATE ROLE inventory LOGIN PASSWORD 'inventory';
CREATE ROLE payment LOGIN PASSWORD 'payment';
CREATE DATABASE orders OWNER orders;
CREATE DATABASE inventory OWNER inventory;
CREATE DATABASE payment OWNER payment;
REVOKE CONNECT ON DATABASE orders, inventory, payment FROM PUBLIC;
