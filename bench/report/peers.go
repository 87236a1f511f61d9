package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/bench"
)

// peerTable has Millrace and its peers side by side: what they are asked, what they answer, and
// what that costs.
type peerTable struct {
	// title heads the table, before the durability class.
	title string
	// columns are the titles of all columns.
	columns []string
	// has says whether rows of a suite belong to the table.
	has func(suite string) bool
	// line makes the cells of a system in a row: those between its rate and how its class is known.
	// side is peer or ours.
	line func(row *bench.Row, side string) []string
}

// peerTables are the tables by what a suite does: those that write, and those that only search.
var peerTables = []peerTable{
	{
		title: "Side by side with peers, ", has: func(suite string) bool { return !searches(suite) }, line: writesLine,
		columns: []string{
			"Row", "System", "Rate", "Create, ms: p50, p99", "Create to claim, ms: p50, p99", "Memory peak, MiB", "Disk, B each", "Syncs each",
			"Disk flushes each", "Server CPU, µs each", "Client CPU, µs each", "Durable when acknowledged", "Class told by", "Settings",
		},
	},
	{
		title: "Searches side by side with peers, ", has: searches, line: searchesLine,
		columns: []string{
			"Row", "System", "Rate", "Recall at 10", "Search, ms: p50, p99", "Memory peak, MiB", "Server CPU, µs each", "Client CPU, µs each",
			"Durable when acknowledged", "Class told by", "Settings",
		},
	},
}

// searches reports whether a suite only asks and writes nothing.
func searches(suite string) bool { return strings.HasPrefix(suite, "search.") }

// lines is the table of one durability class: two lines for each row that alternated with a peer,
// the peer's first. It is empty when no row did. A dash stands for what was not measured, or what a
// system does not tell.
func (t *peerTable) lines(r *bench.Result, class string) (lines [][]string) {
	for i := range r.Suites {
		row := &r.Suites[i]
		p := peerOf(row)
		if p == nil || row.Durability != class || !t.has(row.Suite) {
			continue
		}
		// by is who told the class: the server itself, or the person who started it.
		by := "the server"
		if p.Declared {
			by = "who started it"
		}
		settings := make([]string, len(p.Settings))
		for i, s := range p.Settings {
			settings[i] = s.Name + "=" + s.Value
		}
		// A system of class N makes nothing durable, whatever steps it acknowledges.
		durable := p.Durable
		if p.Class == "N" {
			durable = "none"
		}
		// line puts together what every table has in common with what its own function makes.
		line := func(system, side string, more ...string) []string {
			return slices.Concat([]string{row.Suite + "/" + row.Row, system, peerRate(row, side)}, t.line(row, side), more)
		}
		lines = append(lines, line(p.Server+", "+p.Client, "peer", durable, by, strings.Join(settings, " ")),
			line("Millrace", "ours", oursDurable(row), "the server", shape(row)))
	}
	return lines
}

// peerOf is the peer of a row, as its first run with one names it, or nil.
func peerOf(row *bench.Row) *bench.PeerReport {
	for i := range row.Runs {
		if p := row.Runs[i].Peer; p != nil {
			return p
		}
	}
	return nil
}

// peerRate is the rate of a system with its class; side is how the names of its figures begin.
func peerRate(row *bench.Row, side string) string {
	f, ok := row.Figures[side+"_per_s"]
	if !ok || f.IsZero() {
		return "–"
	}
	rate := fmt.Sprintf("%s %s · %s", bench.Number(f.Median()), f.Unit(), cmp.Or(f.Label().Class(), row.Durability))
	if v := f.Label().Validity; v != bench.Valid {
		rate += " · " + string(v)
	}
	return rate
}

// peerValue is the median of a figure times scale, or a dash.
func peerValue(row *bench.Row, metric string, scale float64) string {
	f, ok := row.Figures[metric]
	if !ok || f.IsZero() {
		return "–"
	}
	return bench.Number(f.Median() * scale)
}

// peerTimes are p50 and p99 of an operation of a system, in milliseconds. Names of ours have no prefix.
func peerTimes(row *bench.Row, side, op string) string {
	// The harness names operations of ours plainly, those of a peer with peer_ before them.
	op = map[string]string{"peer": "peer_", "ours": ""}[side] + op
	return peerValue(row, op+"_p50_us", 1e-3) + ", " + peerValue(row, op+"_p99_us", 1e-3)
}

// writesLine is the line function of suites that write.
func writesLine(row *bench.Row, side string) []string {
	return []string{
		peerTimes(row, side, "create"), peerTimes(row, side, "create_to_claim"), peerValue(row, side+"_memory_peak", 1),
		peerValue(row, side+"_disk_bytes_per_cycle", 1), peerValue(row, side+"_fsyncs_per_cycle", 1), peerValue(row, side+"_disk_flushes_per_cycle", 1),
		peerValue(row, side+"_server_cpu_us_per_cycle", 1), peerValue(row, side+"_client_cpu_us_per_cycle", 1),
	}
}

// searchesLine is the line function of suites that search. A recall has three digits, because 0.98
// and 0.999 are far apart.
func searchesLine(row *bench.Row, side string) []string {
	recall := "–"
	if f, ok := row.Figures[side+"_recall_at_10"]; ok && !f.IsZero() {
		recall = fmt.Sprintf("%.3f", f.Median())
	}
	return []string{
		recall, peerTimes(row, side, "search"), peerValue(row, side+"_memory_peak", 1),
		peerValue(row, side+"_server_cpu_us_per_cycle", 1), peerValue(row, side+"_client_cpu_us_per_cycle", 1),
	}
}

// peers prints one table per durability class.
func (p *page) peers(r *bench.Result, heading string) {
	for _, t := range peerTables {
		for _, class := range classes(r.Suites) {
			lines := t.lines(r, class)
			if len(lines) == 0 {
				continue
			}
			p.line("%s %s", heading, t.title+class)
			p.line("")
			p.head(t.columns...)
			for _, l := range lines {
				p.row(l...)
			}
			p.line("")
		}
	}
}

// peers writes one table per durability class.
func (d *document) peers(r *bench.Result) {
	for _, t := range peerTables {
		for _, class := range classes(r.Suites) {
			lines := t.lines(r, class)
			if len(lines) == 0 {
				continue
			}
			d.line("<section><h2>%s</h2><table><thead><tr><th>%s</th></tr></thead><tbody>", text(t.title+class), strings.Join(escaped(t.columns), "</th><th>"))
			for _, l := range lines {
				d.line("<tr><td>%s</td></tr>", strings.Join(escaped(l), "</td><td>"))
			}
			d.line("</tbody></table></section>")
		}
	}
}

// escaped escapes each cell for HTML.
func escaped(cells []string) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = text(c)
	}
	return out
}

// oursDurable says which of our steps are durable when they are acknowledged.
func oursDurable(row *bench.Row) string {
	switch {
	case row.Label.Durability == bench.None:
		return "none"
	case row.Param("workers") == "":
		return "write"
	}
	return "create, claim, complete"
}
