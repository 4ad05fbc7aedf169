-- Tables of TPC-H at scale 0.1, with the schema, the sizes and the value ranges of its specification.
-- They are not those of dbgen: every value follows from the number of its row by a hash.
CREATE OR REPLACE MACRO pick(i, k, n) AS (hash(CAST(i AS BIGINT) * 64 + k) % n)::BIGINT;
CREATE OR REPLACE MACRO one_of(list, i, k) AS list[pick(i, k, len(list)) + 1];
CREATE OR REPLACE MACRO words(i, k) AS concat_ws(' ',
    one_of(['quickly', 'slyly', 'carefully', 'special', 'furiously', 'blithely', 'final', 'express'], i, k),
    one_of(['packages', 'requests', 'accounts', 'deposits', 'pending', 'ideas', 'theodolites'], i, k + 1),
    one_of(['sleep', 'wake', 'nag', 'haggle', 'requests', 'integrate', 'boost', 'detect'], i, k + 2),
    one_of(['above', 'after', 'among', 'across', 'beneath', 'Customer', 'along'], i, k + 3),
    one_of(['the', 'even', 'bold', 'Complaints', 'regular', 'silent', 'ironic'], i, k + 4));

CREATE OR REPLACE TABLE region AS
SELECT (i - 1)::INTEGER AS r_regionkey, ['AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'][i] AS r_name,
       words(i, 1) AS r_comment
FROM range(1, 6) t(i);

CREATE OR REPLACE TABLE nation AS
SELECT (i - 1)::INTEGER AS n_nationkey,
       ['ALGERIA', 'ARGENTINA', 'BRAZIL', 'CANADA', 'EGYPT', 'ETHIOPIA', 'FRANCE', 'GERMANY', 'INDIA', 'INDONESIA',
        'IRAN', 'IRAQ', 'JAPAN', 'JORDAN', 'KENYA', 'MOROCCO', 'MOZAMBIQUE', 'PERU', 'CHINA', 'ROMANIA',
        'SAUDI ARABIA', 'VIETNAM', 'RUSSIA', 'UNITED KINGDOM', 'UNITED STATES'][i] AS n_name,
       [0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1][i]::INTEGER AS n_regionkey,
       words(i, 1) AS n_comment
FROM range(1, 26) t(i);

CREATE OR REPLACE TABLE supplier AS
SELECT i AS s_suppkey, format('Supplier#{:09d}', i) AS s_name, words(i, 1) AS s_address,
       pick(i, 10, 25)::INTEGER AS s_nationkey,
       format('{}-{}-{}', pick(i, 10, 25) + 10, pick(i, 11, 900) + 100, pick(i, 12, 9000) + 1000) AS s_phone,
       ((pick(i, 13, 1099999) - 99999) / 100)::DECIMAL(15, 2) AS s_acctbal,
       CASE WHEN pick(i, 14, 50) = 0 THEN 'even Customer slyly Complaints' ELSE words(i, 15) END AS s_comment
FROM range(1, 1001) t(i);

CREATE OR REPLACE TABLE part AS
SELECT i AS p_partkey,
       concat_ws(' ', one_of(['forest', 'green', 'almond', 'azure', 'blush', 'navy', 'peach', 'royal', 'tan'], i, 1),
           one_of(['ivory', 'green', 'lace', 'lemon', 'linen', 'puff', 'plum', 'snow', 'wheat'], i, 2),
           one_of(['misty', 'moccasin', 'olive', 'orchid', 'pale', 'papaya', 'red', 'rose'], i, 3)) AS p_name,
       format('Manufacturer#{}', pick(i, 4, 5) + 1) AS p_mfgr,
       format('Brand#{}{}', pick(i, 4, 5) + 1, pick(i, 5, 5) + 1) AS p_brand,
       concat_ws(' ', one_of(['STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO'], i, 6),
           one_of(['ANODIZED', 'BURNISHED', 'PLATED', 'POLISHED', 'BRUSHED'], i, 7),
           one_of(['TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER'], i, 8)) AS p_type,
       (pick(i, 9, 50) + 1)::INTEGER AS p_size,
       concat_ws(' ', one_of(['SM', 'LG', 'MED', 'JUMBO', 'WRAP'], i, 10),
           one_of(['CASE', 'BOX', 'BAG', 'JAR', 'PKG', 'PACK', 'CAN', 'DRUM'], i, 11)) AS p_container,
       ((90000 + (i // 10) % 20001 + 100 * (i % 1000)) / 100)::DECIMAL(15, 2) AS p_retailprice,
       words(i, 12) AS p_comment
FROM range(1, 20001) t(i);

CREATE OR REPLACE TABLE partsupp AS
SELECT p AS ps_partkey, (p + s * 251) % 1000 + 1 AS ps_suppkey,
       (pick(p * 4 + s, 1, 9999) + 1)::INTEGER AS ps_availqty,
       ((pick(p * 4 + s, 2, 99901) + 100) / 100)::DECIMAL(15, 2) AS ps_supplycost, words(p * 4 + s, 3) AS ps_comment
FROM range(1, 20001) a(p), range(4) b(s);

CREATE OR REPLACE TABLE customer AS
SELECT i AS c_custkey, format('Customer#{:09d}', i) AS c_name, words(i, 1) AS c_address,
       pick(i, 10, 25)::INTEGER AS c_nationkey,
       format('{}-{}-{}', pick(i, 10, 25) + 10, pick(i, 11, 900) + 100, pick(i, 12, 9000) + 1000) AS c_phone,
       ((pick(i, 13, 1099999) - 99999) / 100)::DECIMAL(15, 2) AS c_acctbal,
       one_of(['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'MACHINERY', 'HOUSEHOLD'], i, 14) AS c_mktsegment,
       words(i, 15) AS c_comment
FROM range(1, 15001) t(i);

CREATE OR REPLACE TABLE made_lines AS
SELECT o, n, o * 8 + n AS i, DATE '1992-01-01' + pick(o, 1, 2406)::INTEGER AS ordered,
       DATE '1992-01-01' + (pick(o, 1, 2406) + 1 + pick(o * 8 + n, 2, 121))::INTEGER AS shipped
FROM range(1, 150001) a(o), range(1, 8) b(n)
WHERE n <= pick(o, 3, 7) + 1;

CREATE OR REPLACE TABLE lineitem AS
SELECT o AS l_orderkey, p AS l_partkey, (p + pick(i, 11, 4) * 251) % 1000 + 1 AS l_suppkey, n::INTEGER AS l_linenumber,
       quantity::DECIMAL(15, 2) AS l_quantity,
       (quantity * (90000 + (p // 10) % 20001 + 100 * (p % 1000)) / 100)::DECIMAL(15, 2) AS l_extendedprice,
       (pick(i, 13, 11) / 100)::DECIMAL(15, 2) AS l_discount, (pick(i, 14, 9) / 100)::DECIMAL(15, 2) AS l_tax,
       CASE WHEN received > DATE '1995-06-17' THEN 'N' ELSE one_of(['R', 'A'], i, 15) END AS l_returnflag,
       CASE WHEN shipped > DATE '1995-06-17' THEN 'O' ELSE 'F' END AS l_linestatus,
       shipped AS l_shipdate, ordered + (30 + pick(i, 16, 61))::INTEGER AS l_commitdate, received AS l_receiptdate,
       one_of(['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'], i, 17) AS l_shipinstruct,
       one_of(['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'], i, 18) AS l_shipmode, words(i, 19) AS l_comment
FROM (SELECT *, pick(i, 10, 20000) + 1 AS p, pick(i, 12, 50) + 1 AS quantity,
             shipped + (1 + pick(i, 20, 30))::INTEGER AS received FROM made_lines);

CREATE OR REPLACE TABLE orders AS
SELECT o AS o_orderkey, (pick(o, 30, 5000) * 3 + 1 + pick(o, 31, 2)) AS o_custkey,
       CASE WHEN all_open THEN 'O' WHEN none_open THEN 'F' ELSE 'P' END AS o_orderstatus,
       total::DECIMAL(15, 2) AS o_totalprice, ordered AS o_orderdate,
       one_of(['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'], o, 32) AS o_orderpriority,
       format('Clerk#{:09d}', pick(o, 33, 100) + 1) AS o_clerk, 0 AS o_shippriority, words(o, 34) AS o_comment
FROM (SELECT l_orderkey AS o, bool_and(l_linestatus = 'O') AS all_open, bool_and(l_linestatus = 'F') AS none_open,
             sum(l_extendedprice * (1 + l_tax) * (1 - l_discount)) AS total FROM lineitem GROUP BY l_orderkey)
JOIN (SELECT DISTINCT o, ordered FROM made_lines) USING (o);
