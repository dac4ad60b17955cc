-- The logins of compose.yaml and the database, made by PostgreSQL's administrator: the owner of the
-- tables, and one for each kind of process with only the rights of its role. Can be repeated, and
-- then sets the passwords again. They are read from files, so that they are in no argument list.
\set owner `cat /run/secrets/migrate-password`
\set gateway `cat /run/secrets/gateway-password`
\set worker `cat /run/secrets/worker-password`
\set operator `cat /run/secrets/operator-password`
\set desk `cat /run/secrets/desk-password`

SELECT format('CREATE ROLE %I', name)
FROM unnest(ARRAY['letterbox', 'letterbox_gateway', 'letterbox_worker', 'letterbox_operator',
    'letterbox_desk']) AS name
WHERE to_regrole(name) IS NULL \gexec

ALTER ROLE letterbox LOGIN CREATEROLE PASSWORD :'owner';
ALTER ROLE letterbox_gateway LOGIN PASSWORD :'gateway';
ALTER ROLE letterbox_worker LOGIN PASSWORD :'worker';
ALTER ROLE letterbox_operator LOGIN PASSWORD :'operator';
ALTER ROLE letterbox_desk LOGIN PASSWORD :'desk';
GRANT letterbox_gateway, letterbox_worker, letterbox_operator, letterbox_desk TO letterbox
    WITH ADMIN OPTION;

-- An administrator who is no superuser may make databases only for roles that are granted to them.
GRANT letterbox TO CURRENT_USER;
SELECT 'CREATE DATABASE letterbox OWNER letterbox'
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'letterbox') \gexec
