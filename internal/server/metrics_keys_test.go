package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// useKeyspaces puts 10 bytes under a key of 1 byte, in each of count keyspaces, in some twice or three times, and reads it in each.
func useKeyspaces(t *testing.T, r *Running, count int) {
	t.Helper()
	read := func(q *http.Request) { q.Header.Set("Authorization", "Bearer t") }
	put := func(q *http.Request) {
		read(q)
		q.Body = io.NopCloser(strings.NewReader("0123456789"))
	}
	for n := 1; n <= count; n++ {
		at := fmt.Sprintf("http://%s/v1/kv/space%03d/keys/k", r.HTTPAddress, n)
		for range 1 + n%3 {
			if got := ask(t, "PUT", at, put); got.code != http.StatusOK {
				t.Fatalf("%d %s", got.code, got.body)
			}
		}
		if got := ask(t, "GET", at, read); got.code != http.StatusOK {
			t.Fatalf("%d %s", got.code, got.body)
		}
	}
	ask(t, "GET", "http://"+r.HTTPAddress+"/v1/kv/absent/keys/k", read)
}

func sumOf(series map[string]float64, name string) (sum float64, named int) {
	for s, v := range series {
		if strings.HasPrefix(s, name+"{") {
			sum += v
			if !strings.Contains(s, `keyspace="other"`) {
				named++
			}
		}
	}
	return sum, named
}

func TestKeyspacesAreCountedByNameOnlyWhenThatIsAskedFor(t *testing.T) {
	const count = 120
	writes := 0
	for n := 1; n <= count; n++ {
		writes += 1 + n%3
	}
	for _, asked := range []bool{false, true} {
		r := startForAdmin(t, Options{Durability: None, KeyspaceMetrics: asked})
		useKeyspaces(t, r, count)
		got := scrape(t, r)
		want := 0
		if asked {
			want = 100
		}
		for name, sum := range map[string]int{
			"millrace_kv_reads_total": count, "millrace_kv_read_bytes_total": 11 * count,
			"millrace_kv_writes_total": writes, "millrace_kv_written_bytes_total": 11 * writes,
		} {
			if v, named := sumOf(got, name); v != float64(sum) || named != want {
				t.Errorf("%s: %v in %d named series, want %d in %d", name, v, named, sum, want)
			}
		}
		if v, ok := got[`millrace_kv_writes_total{keyspace="space002",namespace="default",tenant="acme"}`]; ok != asked || asked && v != 3 {
			t.Errorf("asked for %t: the most used keyspace has %v (there: %t)", asked, v, ok)
		}
	}
}
