#!/bin/sh
# Starts as root, gives the data folder to the user postgres and continues as this user. Creates a database if the
# folder is empty.
set -eu

if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"
    chmod 700 "$PGDATA"
    find "$PGDATA" ! -user postgres -exec chown postgres '{}' +
    exec gosu postgres "$0" "$@"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    password=$(mktemp)
    printf '%s\n' "${POSTGRES_PASSWORD:?must be set before the first start}" >"$password"
    initdb --username="$POSTGRES_USER" --pwfile="$password" --encoding=UTF8
    rm "$password"
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
    # Listen on the Unix socket only, so that no client considers the server ready before the database exists.
    pg_ctl --wait --options="-c listen_addresses=''" start
    [ "$POSTGRES_DB" = postgres ] || createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl --wait --mode=fast stop
fi

exec "$@"
