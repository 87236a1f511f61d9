package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/bench"
)

const (
	// pgvectorM is m of the index, the number of neighbours of a row in its graph: pgvector's default.
	pgvectorM = 16
	// pgvectorBuild is ef_construction of the index: how many candidates are in sight when a row is added.
	pgvectorBuild = 100
	// pgvectorLoad is the number of rows of one insert.
	pgvectorLoad = 500
	// pgvectorQuery is what callers send. Its operator is the negative inner product, so the nearest row comes first.
	pgvectorQuery = "SELECT id FROM " + postgresSchema + ".points ORDER BY v <#> $1 LIMIT 10"
)

// pgvector is PostgreSQL with the extension vector, and a table of vectors of length 1 under an index that is walked by
// inner product: what its manual advises for such vectors.
type pgvector struct {
	// pool is for all but searches: it makes, fills and drops the schema.
	pool *pgxpool.Pool
	// report is what the result says of the peer; prepare adds the settings of the index.
	report bench.PeerReport
	// lines has a connection for each caller, with the query prepared.
	lines []*pgx.Conn
	// bound are the vectors of queries by their number, as they are bound.
	bound [][]byte
}

// openPgvector connects, and refuses a server that syncs otherwise than the run wants it or holds the bench's schema.
// It returns the server's processes, too, for their CPU and memory.
func openPgvector(ctx context.Context, url, class string) (_ *pgvector, server processes, err error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, processes{}, refusedPeer("pgvector", "%v", err)
	}
	p := &pgvector{}
	if p.pool, err = pgxpool.NewWithConfig(ctx, c); err != nil {
		return nil, processes{}, absent("pgvector", err)
	}
	defer func() {
		if err != nil {
			p.pool.Close()
		}
	}()
	version, settings, err := checkPostgres(ctx, p.pool, "pgvector", class)
	if err != nil {
		return nil, processes{}, err
	}
	p.report = bench.PeerReport{
		Name: "pgvector", Server: version, Client: module("github.com/jackc/pgx/v5"), Class: class, Durable: "write", Settings: settings,
	}
	return p, listening(postgresAddress(c)), nil
}

// prepare stores the vectors, builds the index, and opens a connection for each caller. ef is how many rows a search of
// the index keeps in sight. The index is built after the load, which is faster than to keep it up to date.
func (p *pgvector) prepare(ctx context.Context, d *vectors, callers, ef int) error {
	for _, sql := range []string{
		"CREATE SCHEMA " + postgresSchema,
		"CREATE EXTENSION IF NOT EXISTS vector SCHEMA " + postgresSchema,
		fmt.Sprintf("CREATE TABLE %s.points (id int PRIMARY KEY, v %s(%d))", postgresSchema, postgresSchema+".vector", len(d.rows[0])),
	} {
		if _, err := p.pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make pgvector's table: %w", err)
		}
	}
	for from := 0; from < len(d.rows); from += pgvectorLoad {
		// Vectors go as text in one array: the library knows no binary form of the extension's type.
		ids, texts := make([]int32, 0, pgvectorLoad), make([]string, 0, pgvectorLoad)
		for i := from; i < min(from+pgvectorLoad, len(d.rows)); i++ {
			ids, texts = append(ids, int32(i)), append(texts, vectorText(d.rows[i]))
		}
		sql := fmt.Sprintf("INSERT INTO %[1]s.points SELECT i, t::%[1]s.vector FROM unnest($1::int[], $2::text[]) AS u(i, t)", postgresSchema)
		if _, err := p.pool.Exec(ctx, sql, ids, texts); err != nil {
			return fmt.Errorf("store vectors in pgvector: %w", err)
		}
	}
	for _, sql := range []string{
		fmt.Sprintf("CREATE INDEX ON %[1]s.points USING hnsw (v %[1]s.vector_ip_ops) WITH (m = %[2]d, ef_construction = %[3]d)", postgresSchema, pgvectorM, pgvectorBuild),
		"VACUUM ANALYZE " + postgresSchema + ".points",
	} {
		if _, err := p.pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("build pgvector's index: %w", err)
		}
	}
	for _, q := range d.queries {
		p.bound = append(p.bound, vectorBinary(q))
	}
	for range callers {
		c, err := p.line(ctx, ef)
		if err != nil {
			return err
		}
		p.lines = append(p.lines, c)
	}
	// A plan without the index would give a rate of something else.
	if err := p.walks(ctx, d); err != nil {
		return err
	}
	var extension string
	if err := p.pool.QueryRow(ctx, "SELECT extversion FROM pg_extension WHERE extname = 'vector'").Scan(&extension); err != nil {
		return fmt.Errorf("ask PostgreSQL for pgvector's version: %w", err)
	}
	p.report.Server += ", pgvector " + extension
	p.report.Settings = append(p.report.Settings, param("hnsw.m", "%d", pgvectorM), param("hnsw.ef_construction", "%d", pgvectorBuild),
		param("hnsw.ef_search", "%d", ef), param("connections", "%d", callers))
	return nil
}

// line opens a connection on which the query is prepared. Nothing but it is sent on it from then on.
func (p *pgvector) line(ctx context.Context, ef int) (*pgx.Conn, error) {
	c, err := pgx.ConnectConfig(ctx, p.pool.Config().ConnConfig)
	if err != nil {
		return nil, absent("pgvector", err)
	}
	for _, sql := range []string{"SET search_path = " + postgresSchema + ", public", fmt.Sprintf("SET hnsw.ef_search = %d", ef)} {
		if _, err := c.Exec(ctx, sql); err != nil {
			return nil, errors.Join(fmt.Errorf("set up a connection of pgvector: %w", err), c.Close(ctx))
		}
	}
	if _, err := c.PgConn().Prepare(ctx, "nearest", pgvectorQuery, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare pgvector's query: %w", err), c.Close(ctx))
	}
	return c, nil
}

// walks refuses a planner that does not use the index: its rate would be of something else.
func (p *pgvector) walks(ctx context.Context, d *vectors) error {
	sql := "EXPLAIN " + strings.Replace(pgvectorQuery, "$1", "'"+vectorText(d.queries[0])+"'", 1)
	rows, err := p.lines[0].Query(ctx, sql)
	if err != nil {
		return fmt.Errorf("ask for pgvector's plan: %w", err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("ask for pgvector's plan: %w", err)
	}
	if !slices.ContainsFunc(plan, func(l string) bool { return strings.Contains(l, "points_v_idx") }) {
		return fmt.Errorf("pgvector does not use its index: %s", strings.Join(plan, "; "))
	}
	return nil
}

// search returns what is nearest to a query, best first. Only its own caller uses a connection, so no lock is needed.
func (p *pgvector) search(ctx context.Context, caller, query int) ([]int, error) {
	r := p.lines[caller].PgConn().ExecPrepared(ctx, "nearest", [][]byte{p.bound[query]}, []int16{pgx.BinaryFormatCode}, []int16{pgx.BinaryFormatCode})
	var out []int
	for r.NextRow() {
		out = append(out, int(binary.BigEndian.Uint32(r.Values()[0])))
	}
	_, err := r.Close()
	return out, err
}

// close removes what the bench made.
func (p *pgvector) close(ctx context.Context) error {
	var all []error
	for _, c := range p.lines {
		all = append(all, c.Close(ctx))
	}
	all = append(all, dropPostgresSchema(ctx, p.pool))
	p.pool.Close()
	return errors.Join(all...)
}

// vectorText is a vector as PostgreSQL reads it.
func vectorText(v []float32) string {
	b := []byte{'['}
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
	}
	return string(append(b, ']'))
}

// vectorBinary is a vector as it is bound: its length and a spare number of 16 bits each, then numbers of 32 bits, all
// big-endian.
func vectorBinary(v []float32) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(v)))
	b = binary.BigEndian.AppendUint16(b, 0)
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// pgvectorPeer is a PostgreSQL with pgvector, which runs. url is a connection string of PostgreSQL.
type pgvectorPeer struct{ url string }

// drive carries out one run: both hold the same vectors, and answer the same queries.
func (e *pgvectorPeer) drive(ctx context.Context, rig *bench.Rig) (err error) {
	ef, err := strconv.Atoi(strings.TrimPrefix(rig.Shape.Kind, "ef-"))
	if err != nil {
		return fmt.Errorf("row %s: %w", rig.Row, err)
	}
	p, server, err := openPgvector(ctx, e.url, classOf(rig))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		err = errors.Join(err, p.close(ctx))
	}()
	d, err := newVectors(ctx, rig)
	if err != nil {
		return err
	}
	if err := p.prepare(ctx, d, rig.Shape.Callers, ef); err != nil {
		return err
	}
	rig.Peer(p.report)
	m, err := openVectors(ctx, rig, d, ef)
	if err != nil {
		return err
	}
	defer m.close()
	theirs := newSearcher("pgvector", rig, "peer_search", server, len(d.queries), p.search)
	ours := newSearcher("millrace", rig, "search", listening(rig.Servers[0].Address), len(d.queries), m.search)
	sides := map[string]*searcher{"peer": theirs, "ours": ours}
	for column, s := range sides { // before the window: caches are warm in it
		recall, err := d.recall(ctx, s.search)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		rig.Metric(column+"_recall_at_10", recall, "share")
	}
	before := server.used().cpu
	if err := inTurns(ctx, rig, &theirs.turner, &ours.turner); err != nil {
		return err
	}
	rig.PeerCPU(server.used().cpu - before)
	for column, s := range sides {
		if !s.figures(rig, column, "searches/s") {
			return nil
		}
		rig.Metric(column+"_memory_peak", s.servers.used().memory/(1<<20), "MiB")
		if wall := s.share(); wall > clientWall {
			rig.Warn("client_bound", fmt.Sprintf("%s: the client took %.0f %% of the machine", s.name, 100*wall), wall)
		}
	}
	rig.Metric("ratio_to_peer", ours.rate()/theirs.rate(), "×")
	if ours.cpu > 0 && theirs.cpu > 0 {
		rig.Metric("server_cpu_ratio_to_peer", theirs.cpu/float64(theirs.calls)/(ours.cpu/float64(ours.calls)), "×")
	}
	return nil
}

// searcher is one of the two systems in a run.
type searcher struct {
	turner
	// search asks one query of a caller. It returns the ids of rows, best first.
	search func(ctx context.Context, caller, query int) ([]int, error)
	// servers are the processes whose CPU is measured.
	servers processes
	// next counts queries, which callers take in turn, round and round.
	next atomic.Uint64
	// found is the number of answers with all their rows.
	found atomic.Uint64
}

// newSearcher returns a side of the run. op is the name of its operation in the result, and queries the number of
// queries.
func newSearcher(name string, rig *bench.Rig, op string, servers processes, queries int, search func(context.Context, int, int) ([]int, error)) *searcher {
	s := &searcher{turner: turner{name: name}, search: search, servers: servers}
	calls := rig.Op(op)
	s.once = func(ctx context.Context, caller int) {
		at := time.Now()
		ids, err := search(ctx, caller, int(s.next.Add(1)%uint64(queries)))
		// A short answer is an error: a search that finds less does less work.
		if err == nil && len(ids) != nearest {
			err = fmt.Errorf("%d rows were found, and there are enough for %d", len(ids), nearest)
		}
		if err == nil {
			s.found.Add(1)
		}
		calls.Record(caller, at, 1, err)
	}
	s.done = s.found.Load
	s.used = func(context.Context) (float64, error) { return servers.used().cpu, nil }
	return s
}
