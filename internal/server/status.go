package server

import (
	"cmp"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/config"
)

// statusReport is the answer of /debug/status. Status has the same names and figures as the API's
// status.
type statusReport struct {
	Status *nodeReport `json:"status,omitempty"` // none before the node runs
	// Unready says why the node does not serve all it should; empty: it does.
	Unready string       `json:"unready,omitempty"`
	Build   buildReport  `json:"build"`
	Config  configReport `json:"config"`
	// Limits are the bounds in force, by their names in errors.
	Limits map[string]int64 `json:"limits"`
}

// nodeReport has the fields of the API's StatusResponse. Counters begin with the process.
type nodeReport struct {
	Version        string    `json:"version"`
	Durability     string    `json:"durability"`
	Node           string    `json:"node"`
	Shards         uint32    `json:"shards"`
	AppliedIndex   uint64    `json:"applied_index"`
	Fsyncs         uint64    `json:"fsyncs"`
	LogBytes       uint64    `json:"log_bytes"`
	Entries        uint64    `json:"entries"`
	StoreMutations uint64    `json:"store_mutations"`
	StartedAt      time.Time `json:"started_at"`
	DiskFull       bool      `json:"disk_full"`
	Features       []string  `json:"features"`
}

// buildReport says what the program was built from, and on what it runs.
type buildReport struct {
	Version  string            `json:"version"`
	Go       string            `json:"go"`
	OS       string            `json:"os"`
	Arch     string            `json:"arch"`
	CPUs     int               `json:"cpus"`     // that the process uses at once
	Settings map[string]string `json:"settings"` // of the compiler: tags, flags, revision
}

// configReport lists the settings in force. It names each field that is shown, so that a secret, or
// a setting that is added later, is not shown by default.
type configReport struct {
	// Settings under the names of their flags.
	Data         string     `json:"data"`
	Listen       string     `json:"listen"`
	HTTP         string     `json:"http"`
	Admin        string     `json:"admin"`
	AdminSocket  string     `json:"admin_socket,omitempty"` // empty: there is none
	Metrics      string     `json:"metrics"`
	Insecure     []string   `json:"insecure,omitempty"` // listeners that may be in plain text on a public address
	TLS          bool       `json:"tls"`
	TokensFile   string     `json:"tokens,omitempty"`
	Durability   Durability `json:"durability"`
	Name         string     `json:"name"`
	Shards       int        `json:"shards"`
	Forward      bool       `json:"forward"`
	KeyMetrics   bool       `json:"keyspace_metrics"`
	Cluster      string     `json:"cluster_id,omitempty"`
	NodeID       uint64     `json:"node_id,omitempty"`
	Peers        string     `json:"peers,omitempty"`
	LogArchive   string     `json:"log_archive_dir,omitempty"`
	DiskReserve  int64      `json:"disk_reserve"` // 0 is the default: the lesser of 1 % of the disk and 1 GiB
	LogQuota     int64      `json:"log_quota"`    // 0 is the default: the lesser of 4 GiB and a tenth of the disk
	SnapshotRate int64      `json:"snapshot_rate"`
	GraceMs      int64      `json:"disconnect_grace_ms"` // 0: leases of broken streams end by their own time
	Memory       int64      `json:"memory"`
	// How Memory is split, and the limit of the Go runtime, in bytes.
	MemoryShares map[string]int64 `json:"memory_shares"`
	GoMemLimit   int64            `json:"go_memory_limit"`
}

// status serves /debug/status.
func (a *admin) status(w http.ResponseWriter, _ *http.Request) { asJSON(w, a.report()) }

// report puts the answer together. Before the node runs it has no Status and says why the server is
// not ready.
func (a *admin) report() statusReport {
	out := statusReport{Unready: a.unready(), Build: a.build(), Config: a.config(), Limits: make(map[string]int64)}
	for _, row := range a.o.Limits.Rows() {
		out.Limits[row.Key] = cmp.Or(*row.Value, row.Default)
	}
	if p := a.parts.Load(); p != nil {
		st := p.node.Status()
		out.Status = &nodeReport{
			Version: a.o.Version, Durability: st.Durability, Node: st.Node, Shards: uint32(st.Shards), AppliedIndex: st.AppliedIndex,
			Fsyncs: st.Fsyncs, LogBytes: st.LogBytes, Entries: st.Entries, StoreMutations: st.StoreMutations,
			StartedAt: time.UnixMilli(st.StartedMillis).UTC(), DiskFull: st.DiskFull, Features: api.Features(),
		}
	}
	return out
}

// build reads what the toolchain recorded in the program.
func (a *admin) build() buildReport {
	b := buildReport{
		Version: a.o.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0),
		Settings: make(map[string]string),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			b.Settings[s.Key] = s.Value
		}
	}
	return b
}

// config returns the settings in force, with the defaults that were filled in.
func (a *admin) config() configReport {
	o, shares := a.o, make(map[string]int64)
	socket, _ := o.socketPath()
	for _, s := range o.memory().Shares() {
		shares[s.Name] = s.Bytes
	}
	return configReport{
		Data: o.Dir, Listen: o.Listen, HTTP: o.HTTP, Admin: o.Admin, AdminSocket: socket, Metrics: o.Metrics, Insecure: o.Insecure, TLS: o.TLSCert != "", TokensFile: o.TokensFile,
		Durability: o.Durability, Name: o.Name, Shards: o.Shards,
		Forward: o.Forward, KeyMetrics: o.KeyspaceMetrics, Cluster: o.Cluster.ID, NodeID: o.Cluster.Node, Peers: config.FormatPeers(o.Cluster.Peers), LogArchive: o.ArchiveDir, DiskReserve: o.Reserve, Memory: o.Memory,
		LogQuota: o.LogQuota, SnapshotRate: o.SnapshotRate, GraceMs: o.DisconnectGrace.Milliseconds(),
		MemoryShares: shares, GoMemLimit: debug.SetMemoryLimit(-1),
	}
}
