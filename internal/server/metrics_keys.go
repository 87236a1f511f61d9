package server

import (
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/obs"
)

// keyspaceSeries bounds the series of a metric of keyspaces: one for each of the hundred most used,
// and one for the sum of the others.
const keyspaceSeries = 101

// keyMetrics are those of keyspaces. With named, the keyspaces that are the most used at the time
// of the first scrape get a series of their own and keep it; the others, or without named all, are
// in one sum.
func keyMetrics(named bool) []obs.Metric[api.Stats] {
	row := func(name, help string, read func(*api.KeyspaceCount) uint64) obs.Metric[api.Stats] {
		return obs.Metric[api.Stats]{
			Name: name, Help: help, Labels: []string{"tenant", "namespace", "keyspace"}, Bound: keyspaceSeries,
			Values: func(x api.Stats, put func(float64, ...string)) {
				rest := uint64(0)
				for i := range x.Keyspaces {
					k := &x.Keyspaces[i]
					if named && k.Keyspace != "" {
						put(float64(read(k)), k.Tenant, k.Namespace, k.Keyspace)
						continue
					}
					rest += read(k)
				}
				// The sum exists from the start if it is all there is, so that its first increase
				// is seen.
				if rest > 0 || len(x.Keyspaces) == 0 || !named {
					put(float64(rest), obs.Other, obs.Other, obs.Other)
				}
			},
		}
	}
	return []obs.Metric[api.Stats]{
		row("millrace_kv_reads_total", "Keys that this node read and found, by keyspace", func(k *api.KeyspaceCount) uint64 { return k.Reads }),
		row("millrace_kv_read_bytes_total", "Bytes of those keys and their values", func(k *api.KeyspaceCount) uint64 { return k.ReadBytes }),
		row("millrace_kv_writes_total", "Puts, adds and deletes that came through this node and were committed, by keyspace", func(k *api.KeyspaceCount) uint64 { return k.Writes }),
		row("millrace_kv_written_bytes_total", "Bytes of the keys and values of those", func(k *api.KeyspaceCount) uint64 { return k.WrittenBytes }),
	}
}
