package e2e

import (
	"encoding/json"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// listPlots runs in the page: it lists the plots with what is drawn within each of them, as a person would see it.
const listPlots = `<script>
document.body.innerHTML = "<pre id='seen'></pre>" + document.body.innerHTML;
const seen = [...document.querySelectorAll("svg.plot")].map(svg => {
  const frame = svg.getBoundingClientRect();
  const data = [...svg.querySelectorAll("[data-point]")].filter(e => {
    const b = e.getBoundingClientRect(), s = getComputedStyle(e);
    return b.width + b.height > 0 && b.left >= frame.left - 1 && b.right <= frame.right + 1 && b.top >= frame.top - 1 && b.bottom <= frame.bottom + 1 &&
      s.visibility === "visible" && (s.fill !== "none" || s.stroke !== "none");
  });
  return {name: svg.getAttribute("aria-label"), width: frame.width, points: data.reduce((n, e) => n + Number(e.dataset.point), 0), out: svg.querySelectorAll("[data-point]").length - data.length};
});
document.getElementById("seen").textContent = JSON.stringify(seen);
</script></body>`

func TestABrowserShowsDataInEachPlotOfTheCommittedReports(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a browser")
	}
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium on PATH: the report was not opened in a browser")
	}
	results, err := filepath.Glob("../../bench/results/*/*.json")
	noErr(t, err)
	for _, file := range results {
		page, err := exec.CommandContext(bounded(t, time.Minute), program, "bench", "report", file, "--format", "html").Output()
		noErr(t, err)
		path := filepath.Join(t.TempDir(), "report.html")
		noErr(t, os.WriteFile(path, []byte(strings.Replace(string(page), "</body>", listPlots, 1)), 0o600))
		dom, err := exec.CommandContext(bounded(t, time.Minute), browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
			"--window-size=1300,2000", "--virtual-time-budget=2000", "--dump-dom", "file://"+path).Output()
		noErr(t, err)
		said := regexp.MustCompile(`(?s)<pre id="seen">(.*?)</pre>`).FindStringSubmatch(string(dom))
		if said == nil {
			t.Fatalf("%s: the browser shows %d bytes and no list of plots", file, len(dom))
		}
		var plots []struct {
			Name        string
			Width       float64
			Points, Out int
		}
		noErr(t, json.Unmarshal([]byte(html.UnescapeString(said[1])), &plots))
		if len(plots) == 0 {
			t.Errorf("%s: no plots", file)
		}
		for _, p := range plots {
			if p.Points == 0 || p.Out > 0 || p.Width < 200 {
				t.Errorf("%s: plot %q is %.0f px wide, shows %d points and %d outside of it", file, p.Name, p.Width, p.Points, p.Out)
			}
		}
	}
}
