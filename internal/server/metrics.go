package server

import (
	"errors"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/obs"
	"github.com/millrace/millrace/internal/replog/wal"
	"github.com/millrace/millrace/internal/store"
)

// Bounds of the series of a metric with labels. The labels are closed sets of words of this
// program; the bounds leave room for new ones.
const (
	outcomeSeries = 1600 // methods and codes of the contract; most pairs never happen
	limitSeries   = 100
)

// register adds all metrics of the server to the registry. Each table reads one view, which returns
// false before its part exists; the table is then empty. A view is read once per scrape, so that
// its figures belong together.
func (a *admin) register() error {
	// Each of these reads one part at the time of a scrape.
	log := func() (s wal.Stats, ok bool) {
		p := a.parts.Load()
		if p == nil {
			return s, false
		}
		return p.log.Stats(), true
	}
	stored := func() (s store.Stats, ok bool) {
		p := a.parts.Load()
		if p == nil {
			return s, false
		}
		return p.store.Stats(), true
	}
	shards := func() (s node.Stats, ok bool) {
		p := a.parts.Load()
		if p == nil {
			return s, false
		}
		return p.node.Stats(), true
	}
	edge := func() (s api.Stats, ok bool) {
		p := a.parts.Load()
		if p == nil {
			return s, false
		}
		return p.api.Stats(), true
	}
	return errors.Join(
		obs.Add(a.registry, func() (*admin, bool) { return a, true }, serverMetrics()),
		obs.Add(a.registry, log, logMetrics()),
		obs.Add(a.registry, stored, storeMetrics()),
		obs.Add(a.registry, shards, slices.Concat(nodeMetrics(), raftMetrics(), taskMetrics())),
		obs.Add(a.registry, a.viewPeers, peerMetrics()),
		obs.Add(a.registry, edge, slices.Concat(edgeMetrics(), keyMetrics(a.o.KeyspaceMetrics))),
		obs.Add(a.registry, a.viewGit, gitMetrics()),
		obs.Add(a.registry, a.viewRepos, repoMetrics()),
		obs.Add(a.registry, a.viewSearch, searchMetrics()),
		obs.Add(a.registry, a.viewParts, fileMetrics()),
	)
}

// figure makes a metric without labels that is a count or a size.
func figure[S any, N uint64 | int64 | int](name, help string, read func(S) N) obs.Metric[S] {
	return obs.Metric[S]{Name: name, Help: help, Value: func(s S) float64 { return float64(read(s)) }}
}

// state makes a metric without labels that is 1 or 0.
func state[S any](name, help string, read func(S) bool) obs.Metric[S] {
	return obs.Metric[S]{Name: name, Help: help, Value: func(s S) float64 { return float64(bit(read(s))) }}
}

// bit returns 1 for true.
func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// serverMetrics are those of the process itself, which exist before the node runs.
func serverMetrics() []obs.Metric[*admin] {
	return []obs.Metric[*admin]{
		{
			Name: "millrace_server_build_info", Help: "1, with what runs: version, Go version, and what an acknowledged write survives",
			Labels: []string{"version", "go_version", "durability"}, Bound: 2,
			Values: func(a *admin, put func(float64, ...string)) {
				put(1, a.o.Version, runtime.Version(), string(a.o.Durability))
			},
		},
		{
			Name: "millrace_server_ready_state", Help: "1 while the server serves all it should, else 0; /readyz says why not",
			Value: func(a *admin) float64 { return float64(bit(a.unready() == "")) },
		},
		{
			Name: "millrace_server_refused_changes_total", Help: "Changes of membership that were asked for at this node and refused, by code",
			Labels: []string{"code"}, Bound: len(changeCodes) + 1,
			Values: func(a *admin, put func(float64, ...string)) {
				for i, code := range changeCodes {
					put(float64(a.refused[i].Load()), code)
				}
			},
		},
		figure("millrace_server_memory_bytes", "Memory that all buffers and caches may take together", func(a *admin) int64 { return a.o.Memory }),
		{
			Name: "millrace_server_memory_share_bytes", Help: "Parts of that memory, see the table of shares in the reference of settings; those of peers are 0 without a cluster",
			Labels: []string{"share"}, Bound: 24,
			Values: func(a *admin, put func(float64, ...string)) {
				for _, s := range a.o.memory().Shares() {
					put(float64(s.Bytes), s.Name)
				}
			},
		},
		figure("millrace_server_descriptors_limit", "Files and connections that the process may have open, RLIMIT_NOFILE", func(*admin) int64 { return mostDescriptors() }),
		figure("millrace_server_open_descriptors", "Files and connections that the process has open; 0 where the system does not tell", func(*admin) int { return openDescriptors(store.NewFS(store.SystemFS())) }),
		{
			Name: "millrace_server_share_descriptors", Help: "Parts of that limit, see the table of descriptors in the reference of settings; that of peers is 0 without a cluster",
			Labels: []string{"share"}, Bound: 16,
			Values: func(a *admin, put func(float64, ...string)) {
				for _, s := range a.o.descriptors.Shares() {
					put(float64(s.Bytes), s.Name)
				}
			},
		},
		figure("millrace_server_descriptor_waits_total", "Opens of files that had to wait because too many were open", func(a *admin) uint64 {
			if p := a.parts.Load(); p != nil {
				return p.opens.Waits()
			}
			return 0
		}),
		state("millrace_server_descriptors_short_state", "1 while an open waits because too many files are open, else 0", func(a *admin) bool {
			p := a.parts.Load()
			return p != nil && p.opens.Short()
		}),
		{
			Name: "millrace_wal_sync_seconds", Help: "How long the syncs of the log took; empty with durability none",
			Spread: func(a *admin) obs.Distribution { return a.syncs.Read(1e-6) },
		},
	}
}

// logMetrics are those of the write-ahead log.
func logMetrics() []obs.Metric[wal.Stats] {
	type s = wal.Stats
	return []obs.Metric[s]{
		figure("millrace_wal_syncs_total", "Syncs of the log's content, one for each batch", func(x s) uint64 { return x.Syncs }),
		figure("millrace_wal_written_bytes_total", "Bytes written to the log as records", func(x s) uint64 { return x.Bytes }),
		figure("millrace_wal_entries_total", "Entries made durable", func(x s) uint64 { return x.Entries }),
		figure("millrace_wal_batches_total", "Batches written, each with one write and one sync", func(x s) uint64 { return x.Batches }),
		figure("millrace_wal_seals_total", "Seals written when the log was idle", func(x s) uint64 { return x.Seals }),
		figure("millrace_wal_rotations_total", "Segments that were begun after another", func(x s) uint64 { return x.Rotations }),
		figure("millrace_wal_recycled_segments_total", "Segments that were freed", func(x s) uint64 { return x.Recycled }),
		figure("millrace_wal_rewritten_bytes_total", "Bytes of live entries copied forward so that an old segment could go", func(x s) uint64 { return x.Rewritten }),
		figure("millrace_wal_cache_hits_total", "Entries read from memory", func(x s) uint64 { return x.CacheHits }),
		figure("millrace_wal_disk_reads_total", "Entries read from a segment", func(x s) uint64 { return x.DiskReads }),
		figure("millrace_wal_archive_failures_total", "Attempts to archive a segment that failed; it stays until one succeeds", func(x s) uint64 { return x.ArchiveFailures }),
		figure("millrace_wal_queued_bytes", "Bytes that wait for the log's writer", func(x s) uint64 { return x.QueuedBytes }),
		figure("millrace_wal_live_segments", "Segments with live entries, and the one that is written to", func(x s) uint64 { return x.Segments }),
		figure("millrace_wal_spare_segments", "Segments that are ready to be written to", func(x s) uint64 { return x.Spares }),
		figure("millrace_wal_disk_bytes", "Bytes on disk of segments and spares", func(x s) uint64 { return x.SegmentBytes + x.SpareBytes }),
		figure("millrace_wal_cache_bytes", "Bytes of recent entries in memory", func(x s) uint64 { return x.CacheBytes }),
	}
}

// storeMetrics are those of the store and of the database below it.
func storeMetrics() []obs.Metric[store.Stats] {
	type s = store.Stats
	return []obs.Metric[s]{
		figure("millrace_store_mutations_total", "Changes of keys and ranges written to the database", func(x s) uint64 { return x.Mutations }),
		figure("millrace_store_elided_mutations_total", "Changes that never reached the database, because a later one of the same layer undid them", func(x s) uint64 { return x.Elided }),
		figure("millrace_store_layer_writes_total", "Layers of changes written to the database", func(x s) uint64 { return x.LayerWrites }),
		figure("millrace_store_layer_written_bytes_total", "Bytes of those layers", func(x s) uint64 { return x.LayerBytes }),
		figure("millrace_store_apply_waits_total", "Times that an entry waited for a layer to be written", func(x s) uint64 { return x.ApplyWaits }),
		figure("millrace_store_layer_bytes", "Bytes of applied changes that are in memory only; the log has them", func(x s) uint64 { return x.LayerMemory }),
		figure("millrace_store_flushes_total", "Flushes of the database's memory tables", func(x s) uint64 { return x.Flushes }),
		figure("millrace_store_flushed_bytes_total", "Bytes of those flushes", func(x s) uint64 { return x.FlushedBytes }),
		figure("millrace_store_compactions_total", "Compactions of the database", func(x s) uint64 { return x.Compactions }),
		figure("millrace_store_compacted_bytes_total", "Bytes that compactions wrote", func(x s) uint64 { return x.CompactedBytes }),
		figure("millrace_store_compaction_debt_bytes", "Bytes that are estimated to be compacted still", func(x s) uint64 { return x.CompactionDebt }),
		figure("millrace_store_level0_sublevels", "How many files of level 0 a read may look into", func(x s) int { return x.Sublevels }),
		figure("millrace_store_disk_bytes", "Bytes on disk of the database", func(x s) uint64 { return x.DiskBytes }),
		figure("millrace_store_memtable_bytes", "Bytes of the database's memory tables", func(x s) uint64 { return x.MemTableBytes }),
		figure("millrace_store_cache_bytes", "Bytes of the database's block cache", func(x s) uint64 { return x.CacheBytes }),
		figure("millrace_store_cache_hits_total", "Blocks found in that cache", func(x s) uint64 { return x.CacheHits }),
		figure("millrace_store_cache_misses_total", "Blocks not found there", func(x s) uint64 { return x.CacheMisses }),
		state("millrace_store_full_state", "1 while the database waits for room on the disk", func(x s) bool { return x.Full }),
	}
}

// byShard makes a metric with one figure per shard.
func byShard[N uint64 | int64 | int](name, help string, read func(*node.ShardStats) N) obs.Metric[node.Stats] {
	return obs.Metric[node.Stats]{
		Name: name, Help: help, Labels: []string{"shard"}, Bound: maxShards + 1,
		Values: func(x node.Stats, put func(float64, ...string)) {
			for i := range x.Shards {
				put(float64(read(&x.Shards[i])), shardLabel(x.Shards[i].Shard))
			}
		},
	}
}

// secondsByShard makes a gauge with one duration per shard, in seconds.
func secondsByShard(name, help string, read func(*node.ShardStats) time.Duration) obs.Metric[node.Stats] {
	m := byShard(name, help, func(x *node.ShardStats) int64 { return int64(read(x)) })
	in := m.Values
	m.Values = func(x node.Stats, put func(float64, ...string)) {
		in(x, func(v float64, labels ...string) { put(v/float64(time.Second), labels...) })
	}
	return m
}

// shardLabel returns the label of a shard.
func shardLabel(s core.ShardID) string { return strconv.Itoa(int(s)) }

// nodeMetrics are those of the node, its disk and its shards.
func nodeMetrics() []obs.Metric[node.Stats] {
	type s = node.Stats
	type shard = *node.ShardStats
	return []obs.Metric[s]{
		{
			Name: "millrace_node_known_members", Help: "Members of the cluster by what they are to be: joining, catching_up, learner, promoting, voter, removing", Labels: []string{"state"}, Bound: 8,
			Values: func(x s, put func(float64, ...string)) {
				for is := core.MemberJoining; is <= core.MemberRemoving; is++ {
					n := 0
					for _, m := range x.Members {
						if m.State == is {
							n++
						}
					}
					put(float64(n), is.String())
				}
			},
		},
		state("millrace_node_membership_job_state", "1 while a change of membership is under way, else 0", func(x s) bool { return x.Job.State == core.JobRunning }),
		state("millrace_node_disk_full_state", "1 while new work is refused for want of disk space", func(x s) bool { return x.Full }),
		figure("millrace_node_disk_free_bytes", "Free bytes of the data directory's file system", func(x s) uint64 { return x.FreeBytes }),
		figure("millrace_node_disk_size_bytes", "Size of that file system", func(x s) uint64 { return x.DiskBytes }),
		figure("millrace_node_disk_reserve_bytes", "Free bytes below which new work is refused", func(x s) uint64 { return x.Reserve }),
		figure("millrace_node_known_namespaces", "Namespaces that calls have named since the start", func(x s) int { return x.Namespaces }),
		{
			Name: "millrace_node_entry_commits", Help: "Commits of each entry that this node proposed, its own grants and timed work included",
			Spread: func(x s) obs.Distribution { return x.Batches },
		},
		byShard("millrace_node_ready_state", "1 while the shard leads and serves", func(x shard) int { return bit(x.Ready) }),
		byShard("millrace_node_raft_term", "The shard's term", func(x shard) uint64 { return x.Log.Term }),
		byShard("millrace_node_applied_index", "Index of the last entry applied", func(x shard) uint64 { return x.Applied }),
		byShard("millrace_node_durable_index", "Index up to which the stored state survives a power cut without the log", func(x shard) uint64 { return x.Durable }),
		byShard("millrace_node_waiting_proposals", "Proposals that wait for an entry", func(x shard) int { return x.Proposals }),
		byShard("millrace_node_waiting_proposal_bytes", "Bytes of those", func(x shard) int64 { return x.ProposalBytes }),
		byShard("millrace_node_unapplied_entries", "Entries that are proposed and not yet applied", func(x shard) int { return x.Entries }),
		secondsByShard("millrace_node_overdue_seconds", "How late the earliest timed work is: expiries, delays, retention", func(x shard) time.Duration { return x.Overdue }),
		secondsByShard("millrace_node_time_ahead_seconds", "By how much shard time, by which delays go, is ahead of the wall clock; negative while it is behind; 0 where the shard is not led", func(x shard) time.Duration { return x.Ahead }),
		byShard("millrace_node_open_sessions", "Sessions of streams", func(x shard) int { return x.Sessions }),
		byShard("millrace_node_waiting_claims", "Claims of single calls that wait for tasks", func(x shard) int { return x.Claims }),
		byShard("millrace_node_waited_queues", "Queues that someone waits for", func(x shard) int { return x.WaitedQueues }),
		byShard("millrace_node_result_waits", "Callers that wait for a task's end", func(x shard) int { return x.Waits }),
	}
}

// taskMetrics add up all queues of a shard. Single queues are not shown here: their statistics
// belong to the tenant and come over the API.
func taskMetrics() []obs.Metric[node.Stats] {
	type s = node.Stats
	type shard = *node.ShardStats
	return []obs.Metric[s]{
		{
			Name: "millrace_node_present_tasks", Help: "Tasks that there are, by state, of all tenants together",
			Labels: []string{"shard", "state"}, Bound: maxShards*len(core.States()) + 1,
			Values: func(x s, put func(float64, ...string)) {
				for i := range x.Shards {
					for _, s := range core.States() {
						put(float64(x.Shards[i].Queues.States[s]), shardLabel(x.Shards[i].Shard), s.String())
					}
				}
			},
		},
		byShard("millrace_node_present_queues", "Queues that there are", func(x shard) uint64 { return x.Queues.Queues }),
		byShard("millrace_node_task_bytes", "Bytes of payloads and results that there are", func(x shard) uint64 { return x.Queues.Bytes }),
		byShard("millrace_node_created_tasks_total", "Tasks ever created", func(x shard) uint64 { return x.Queues.Created }),
		byShard("millrace_node_purged_tasks_total", "Tasks ever removed after their retention, or deleted", func(x shard) uint64 { return x.Queues.Purged }),
		{
			Name: "millrace_node_ended_attempts_total", Help: "Attempts that ever ended: completed, failed, or crashed, which is that their lease expired",
			Labels: []string{"shard", "outcome"}, Bound: 3*maxShards + 1,
			Values: func(x s, put func(float64, ...string)) {
				for i := range x.Shards {
					q, label := &x.Shards[i].Queues, shardLabel(x.Shards[i].Shard)
					put(float64(q.Completed), label, core.OutcomeCompleted.String())
					put(float64(q.Failed), label, core.OutcomeFailed.String())
					put(float64(q.Crashed), label, core.OutcomeCrashed.String())
				}
			},
		},
	}
}

// edgeMetrics are those of the edges for clients: calls, refusals, connections.
func edgeMetrics() []obs.Metric[api.Stats] {
	type s = api.Stats
	return []obs.Metric[s]{
		{
			Name: "millrace_api_ended_calls_total", Help: "Calls that ended, by method and code; a stream is one call",
			Labels: []string{"method", "code"}, Bound: outcomeSeries,
			Values: func(x s, put func(float64, ...string)) {
				for _, o := range x.Outcomes {
					put(float64(o.Calls), o.Method, o.Code)
				}
			},
		},
		{
			Name: "millrace_api_refusals_total", Help: "Answers that named a limit, by its name; those of items and frames too",
			Labels: []string{"limit"}, Bound: limitSeries,
			Values: func(x s, put func(float64, ...string)) {
				for _, limit := range refusing() {
					put(0, limit) // so that the first refusal is an increase
				}
				for limit, n := range x.Refusals {
					put(float64(n), limit)
				}
			},
		},
		figure("millrace_api_open_calls", "Calls in flight, streams apart", func(x s) int64 { return x.Calls }),
		figure("millrace_api_open_streams", "Streams that are open", func(x s) int64 { return x.Streams }),
		{
			Name: "millrace_api_held_bytes", Help: "Bytes that the node holds of all clients, by the memory's share that bounds them",
			Labels: []string{"share"}, Bound: 4,
			Values: func(x s, put func(float64, ...string)) {
				put(float64(x.Held.Frames), "frames")
				put(float64(x.Held.Requests), "requests")
				put(float64(x.Held.Sends), "sends")
			},
		},
		figure("millrace_api_open_connections", "Connections that are open", func(x s) int64 { return x.Connections }),
	}
}

// refusing returns the names of all limits that can refuse a request, so that each has a series
// from the start.
func refusing() []string {
	names := []string{
		"bytes_per_second", "collections", "disk", "distinct_keywords", "keyspace_bytes", "keyspaces", "max_payload",
		"namespace_key_bytes", "namespaces", "points_limit", "proposal_bytes", "proposals", "queues", "range_ms",
		"request_ids", "rulesets", "search_memory", "sessions", "task_creates_per_second", "tenant_key_bytes", "tenant_proposal_bytes",
		"tenant_proposals", "tenant_streams", "tenant_task_bytes", "tenant_tasks", "tenants", "uncommitted_log", "waiting_claims", "waits",
		"writes_per_second",
	}
	for _, row := range new(edge.Limits).Rows() {
		names = append(names, row.Key)
	}
	return names
}
