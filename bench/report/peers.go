package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/millrace/millrace/bench"
)

// peerColumns are the columns of the table that has Millrace and its peers side by side.
var peerColumns = []string{
	"Row", "System", "Rate", "Create, ms: p50, p99", "Create to claim, ms: p50, p99", "Memory peak, MiB", "Disk, B each", "Syncs each",
	"Disk flushes each", "Server CPU, µs each", "Client CPU, µs each", "Durable when acknowledged", "Class told by", "Settings",
}

// peerLines is the table of one durability class: two lines for each row that alternated with a peer, the peer's first. It
// is empty when none did. What was not measured, or is not told by a system, is a dash.
func peerLines(r *bench.Result, class string) (lines [][]string) {
	for i := range r.Suites {
		row := &r.Suites[i]
		p := peerOf(row)
		if p == nil || row.Durability != class {
			continue
		}
		by := "the server"
		if p.Declared {
			by = "who started it"
		}
		settings := make([]string, len(p.Settings))
		for i, s := range p.Settings {
			settings[i] = s.Name + "=" + s.Value
		}
		durable := p.Durable
		if p.Class == "N" {
			durable = "none"
		}
		name := row.Suite + "/" + row.Row
		lines = append(lines,
			append(peerLine(row, name, p.Server+", "+p.Client, "peer"), durable, by, strings.Join(settings, " ")),
			append(peerLine(row, name, "Millrace", "ours"), oursDurable(row), "the server", shape(row)))
	}
	return lines
}

// peerOf is what a row alternated with, or nil.
func peerOf(row *bench.Row) *bench.PeerReport {
	for i := range row.Runs {
		if p := row.Runs[i].Peer; p != nil {
			return p
		}
	}
	return nil
}

// peerLine is what both systems of a row have in common; side is how the names of its figures begin.
func peerLine(row *bench.Row, name, system, side string) []string {
	value := func(metric string, scale float64) string {
		f, ok := row.Figures[metric]
		if !ok || f.IsZero() {
			return "–"
		}
		return bench.Number(f.Median() * scale)
	}
	op := map[string]string{"peer": "peer_", "ours": ""}[side]
	both := func(metric string) string {
		return value(op+metric+"_p50_us", 1e-3) + ", " + value(op+metric+"_p99_us", 1e-3)
	}
	rate := "–"
	if f, ok := row.Figures[side+"_per_s"]; ok && !f.IsZero() {
		rate = fmt.Sprintf("%s %s · %s", bench.Number(f.Median()), f.Unit(), cmp.Or(f.Label().Class(), row.Durability))
		if v := f.Label().Validity; v != bench.Valid {
			rate += " · " + string(v)
		}
	}
	return []string{
		name, system, rate, both("create"), both("create_to_claim"), value(side+"_memory_peak", 1), value(side+"_disk_bytes_per_cycle", 1),
		value(side+"_fsyncs_per_cycle", 1), value(side+"_disk_flushes_per_cycle", 1), value(side+"_server_cpu_us_per_cycle", 1),
		value(side+"_client_cpu_us_per_cycle", 1),
	}
}

// peerTitle heads the table of one class.
func peerTitle(class string) string { return "Side by side with peers, " + class }

// peers prints one table per durability class.
func (p *page) peers(r *bench.Result, heading string) {
	for _, class := range classes(r.Suites) {
		lines := peerLines(r, class)
		if len(lines) == 0 {
			continue
		}
		p.line("%s %s", heading, peerTitle(class))
		p.line("")
		p.head(peerColumns...)
		for _, l := range lines {
			p.row(l...)
		}
		p.line("")
	}
}

// peers writes one table per durability class.
func (d *document) peers(r *bench.Result) {
	for _, class := range classes(r.Suites) {
		lines := peerLines(r, class)
		if len(lines) == 0 {
			continue
		}
		d.line("<section><h2>%s</h2><table><thead><tr><th>%s</th></tr></thead><tbody>", text(peerTitle(class)), strings.Join(escaped(peerColumns), "</th><th>"))
		for _, l := range lines {
			d.line("<tr><td>%s</td></tr>", strings.Join(escaped(l), "</td><td>"))
		}
		d.line("</tbody></table></section>")
	}
}

func escaped(cells []string) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = text(c)
	}
	return out
}

// oursDurable is which of our steps are durable when they are acknowledged.
func oursDurable(row *bench.Row) string {
	switch {
	case row.Label.Durability == bench.None:
		return "none"
	case row.Param("workers") == "":
		return "write"
	}
	return "create, claim, complete"
}
