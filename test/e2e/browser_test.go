package e2e

import (
	"encoding/json"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

// listPlots runs in a page of reports, each in a frame of its own: it lists their plots with what is drawn within each of them, as a
// person would see it.
const listPlots = `<script>
addEventListener("load", () => {
  const seen = [...document.querySelectorAll("iframe")].map(f => [...f.contentDocument.querySelectorAll("svg.plot")].map(svg => {
    const frame = svg.getBoundingClientRect();
    const data = [...svg.querySelectorAll("[data-point]")].filter(e => {
      const b = e.getBoundingClientRect(), s = f.contentWindow.getComputedStyle(e);
      return b.width + b.height > 0 && b.left >= frame.left - 1 && b.right <= frame.right + 1 && b.top >= frame.top - 1 && b.bottom <= frame.bottom + 1 &&
        s.visibility === "visible" && (s.fill !== "none" || s.stroke !== "none");
    });
    return {name: svg.getAttribute("aria-label"), width: frame.width, points: data.reduce((n, e) => n + Number(e.dataset.point), 0), out: svg.querySelectorAll("[data-point]").length - data.length};
  }));
  document.body.innerHTML = "<pre id='seen'></pre>";
  document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script>`

func TestABrowserShowsDataInEachPlotOfTheCommittedReports(t *testing.T) {
	onlyInCheck(t, "a browser draws all plots of all committed results")
	t.Parallel()
	if testing.Short() {
		t.Skip("a browser")
	}
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium on PATH: the report was not opened in a browser")
	}
	results, err := bench.ResultFiles("../../bench/results/*")
	noErr(t, err)
	page := listPlots
	for _, file := range results {
		report, err := exec.CommandContext(bounded(t, time.Minute), program, "bench", "report", file, "--format", "html").Output()
		noErr(t, err)
		page += `<iframe style="width: 1300px; height: 2000px" srcdoc="` + html.EscapeString(string(report)) + `"></iframe>`
	}
	path := filepath.Join(t.TempDir(), "reports.html") // one page: most of the time would be the browser's start
	noErr(t, os.WriteFile(path, []byte(page), 0o600))
	dom, err := exec.CommandContext(bounded(t, 2*time.Minute), browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
		"--window-size=1400,2000", "--virtual-time-budget=2000", "--dump-dom", "file://"+path).Output()
	noErr(t, err)
	said := regexp.MustCompile(`(?s)<pre id="seen">(.*?)</pre>`).FindStringSubmatch(string(dom))
	if said == nil {
		t.Fatalf("the browser shows %d bytes and no list of plots", len(dom))
	}
	var reports [][]struct {
		Name        string
		Width       float64
		Points, Out int
	}
	noErr(t, json.Unmarshal([]byte(html.UnescapeString(said[1])), &reports))
	if len(reports) != len(results) {
		t.Fatalf("%d reports are shown, want %d", len(reports), len(results))
	}
	for i, plots := range reports {
		if len(plots) == 0 {
			t.Errorf("%s: no plots", results[i])
		}
		for _, p := range plots {
			if p.Points == 0 || p.Out > 0 || p.Width < 200 {
				t.Errorf("%s: plot %q is %.0f px wide, shows %d points and %d outside of it", results[i], p.Name, p.Width, p.Points, p.Out)
			}
		}
	}
}
