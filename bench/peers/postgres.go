package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/bench"
)

// postgresSchema is where all lies that a bench makes in a database.
const postgresSchema = "millrace_bench"

// checkPostgres refuses a database that syncs otherwise than the run wants it, or holds the bench's schema; name is the
// peer's. It returns what the server calls itself, and what its class is known by.
func checkPostgres(ctx context.Context, pool *pgxpool.Pool, name, class string) (version string, settings []bench.Param, err error) {
	if err := pool.Ping(ctx); err != nil {
		return "", nil, absent(name, err)
	}
	// told is the class that the settings make.
	settings, told, err := postgresSettings(ctx, pool)
	if err != nil {
		return "", nil, err
	}
	if told != class {
		return "", nil, refusedPeer(name, "PostgreSQL says %v, which is class %s; the run is of class %s", settings, told, class)
	}
	var there bool
	if err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", postgresSchema).Scan(&there); err != nil {
		return "", nil, fmt.Errorf("look at the database: %w", err)
	}
	if there {
		return "", nil, refusedPeer(name, "the database holds the schema %s, which a bench has left there: remove it", postgresSchema)
	}
	if err := pool.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return "", nil, fmt.Errorf("ask PostgreSQL what it is: %w", err)
	}
	return "PostgreSQL " + version, settings, nil
}

// postgresAddress is where the server of a pool listens.
func postgresAddress(c *pgxpool.Config) string {
	return net.JoinHostPort(c.ConnConfig.Host, strconv.Itoa(int(c.ConnConfig.Port)))
}

// dropPostgresSchema removes what a bench has made.
func dropPostgresSchema(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+postgresSchema+" CASCADE")
	return err
}

// postgresSettings reads what durability depends on, and the class that makes: F needs all of them.
func postgresSettings(ctx context.Context, pool *pgxpool.Pool) (settings []bench.Param, class string, err error) {
	class = "F"
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers"} {
		var v string
		if err := pool.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&v); err != nil {
			return nil, "", fmt.Errorf("ask PostgreSQL for %s: %w", name, err)
		}
		settings = append(settings, param(name, "%s", v))
		// Without full_page_writes a torn page is not mended, but a commit is synced all the same.
		if v == "off" && name != "full_page_writes" {
			class = "N"
		}
	}
	return settings, class, nil
}
