package report

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"

	"github.com/millrace/millrace/bench"
)

// plot is one drawing: lines over a common axis, or areas on top of each other. It is drawn by hand, because charting
// libraries load fonts and scripts, and the report must show the same on a machine without a network.
type plot struct {
	title, x, y string // y with its durability, if it is a rate
	series      []series
	stacked     bool       // areas, each on top of the one before
	logX        bool       // each step is a factor
	names       []string   // of the positions 0, 1, 2, ...; nil: positions are numbers
	limits      []mark     // lines across, such as a must
	bars        bool       // one bar per point
	noLines     bool       // points alone
	foot        string     // a line below
	span        [2]float64 // of x, if it is wider than the points
}

// series is one line of a plot.
type series struct {
	name      string
	points    []point
	published bool // of another system: drawn dashed
}

// point is a value at a position, with what a pointer over it says.
type point struct {
	x, y float64
	hint string
	out  bool // left out of the figures: drawn hollow
}

// mark is a named value of the y axis.
type mark struct {
	name  string
	value float64
}

// The size of a plot in pixels, and of its margins.
const (
	plotWidth, plotHeight = 560.0, 260.0
	marginLeft            = 64.0
	marginRight           = 16.0
	marginTop             = 30.0
	marginBottom          = 44.0
	plotColors            = 8 // classes c0 to c7 of the style sheet
)

// scale turns values into pixels.
type scale struct {
	low, high float64 // of the values; of their logarithms when log is set
	from, to  float64 // in pixels
	log       bool
}

func (s scale) at(v float64) float64 {
	if s.log {
		v = math.Log2(v)
	}
	if s.high == s.low {
		return (s.from + s.to) / 2
	}
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// empty reports whether there is nothing to draw.
func (p *plot) empty() bool {
	return !slices.ContainsFunc(p.series, func(s series) bool { return len(s.points) > 0 })
}

// draw writes the plot as SVG; nothing when it is empty.
func (p *plot) draw(w *bytes.Buffer) {
	if p.empty() {
		return
	}
	p.stack()
	x, y := p.scales()
	fmt.Fprintf(w, `<figure><svg class="plot" viewBox="0 0 %g %g" role="img" aria-label="%s">`+"\n", plotWidth, plotHeight, text(p.title))
	fmt.Fprintf(w, `<text class="title" x="%g" y="16">%s</text>`+"\n", marginLeft, text(p.title))
	p.grid(w, x, y)
	for i := range p.series {
		p.draw1(w, i, x, y)
	}
	for _, m := range p.limits {
		at := y.at(m.value)
		fmt.Fprintf(w, `<line class="limit" x1="%g" x2="%g" y1="%s" y2="%s"/><text class="limit" x="%g" y="%s">%s</text>`+"\n",
			x.from, x.to, px(at), px(at), x.to, px(at-4), text(m.name))
	}
	w.WriteString("</svg>\n")
	p.legend(w)
	w.WriteString("</figure>\n")
}

// stack adds to each point what lies below it.
func (p *plot) stack() {
	if !p.stacked {
		return
	}
	below := map[float64]float64{}
	for i := range p.series {
		points := slices.Clone(p.series[i].points)
		for k := range points {
			points[k].y += below[points[k].x]
			below[points[k].x] = points[k].y
		}
		p.series[i].points = points
	}
}

// scales spans the axes: x over all points, y from 0 to a round number.
func (p *plot) scales() (x, y scale) {
	low, high, top := math.Inf(1), math.Inf(-1), 0.0
	for _, s := range p.series {
		for _, pt := range s.points {
			low, high, top = min(low, pt.x), max(high, pt.x), max(top, pt.y)
		}
	}
	for _, m := range p.limits {
		top = max(top, m.value)
	}
	if p.span[1] > p.span[0] {
		low, high = min(low, p.span[0]), max(high, p.span[1])
	}
	if p.names != nil {
		low, high = -0.5, float64(len(p.names))-0.5
	}
	if p.logX {
		low, high = math.Log2(low), math.Log2(high)
	}
	step := niceStep(top / 4)
	top = step * math.Ceil(top/step*1.02)
	return scale{low, high, marginLeft, plotWidth - marginRight, p.logX}, scale{0, top, plotHeight - marginBottom, marginTop, false}
}

// niceStep rounds v up to 1, 2 or 5 times a power of ten.
func niceStep(v float64) float64 {
	if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5, 10} {
		if v <= f*unit*(1+1e-9) {
			return f * unit
		}
	}
	return 10 * unit
}

func (p *plot) grid(w *bytes.Buffer, x, y scale) {
	step := niceStep(y.high / 4)
	for n := 0; float64(n)*step <= y.high*(1+1e-9); n++ {
		v := float64(n) * step
		at := y.at(v)
		fmt.Fprintf(w, `<line class="grid" x1="%g" x2="%g" y1="%s" y2="%s"/><text class="tick end" x="%g" y="%s">%s</text>`+"\n",
			x.from, x.to, px(at), px(at), x.from-6, px(at+4), short(v))
	}
	for _, t := range p.ticks(x) {
		fmt.Fprintf(w, `<text class="tick middle" x="%s" y="%g">%s</text>`+"\n", px(x.at(t.value)), y.from+16, text(t.name))
	}
	fmt.Fprintf(w, `<text class="axis middle" x="%g" y="%g">%s</text>`+"\n", (x.from+x.to)/2, plotHeight-8, text(p.x))
	fmt.Fprintf(w, `<text class="axis middle" transform="translate(12 %g) rotate(-90)">%s</text>`+"\n", (y.from+y.to)/2, text(p.y))
}

// ticks are the named positions of the x axis.
func (p *plot) ticks(x scale) []mark {
	var out []mark
	if p.names != nil {
		for i, n := range p.names {
			out = append(out, mark{n, float64(i)})
		}
		return out
	}
	var at []float64
	for _, s := range p.series {
		for _, pt := range s.points {
			if !slices.Contains(at, pt.x) {
				at = append(at, pt.x)
			}
		}
	}
	if len(at) <= 9 { // few: each has its own
		slices.Sort(at)
		for _, v := range at {
			out = append(out, mark{short(v), v})
		}
		return out
	}
	step := niceStep((x.high - x.low) / 6)
	for n := math.Ceil(x.low / step); n*step <= x.high; n++ {
		out = append(out, mark{short(n * step), n * step})
	}
	return out
}

func (p *plot) draw1(w *bytes.Buffer, i int, x, y scale) {
	s := &p.series[i]
	class := fmt.Sprintf("c%d", i%plotColors)
	if s.published {
		class += " published"
	}
	var path bytes.Buffer
	for k, pt := range s.points {
		command := "L"
		if k == 0 {
			command = "M"
		}
		fmt.Fprintf(&path, "%s%s %s", command, px(x.at(pt.x)), px(y.at(pt.y)))
	}
	switch {
	case p.bars:
		wide := (x.to - x.from) / float64(max(len(p.names), 1)) * 0.8 / float64(len(p.series))
		for _, pt := range s.points {
			left := x.at(pt.x) + (float64(i)-float64(len(p.series))/2)*wide
			fmt.Fprintf(w, `<rect class="%s" data-point="1" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`+"\n",
				class, px(left), px(y.at(pt.y)), px(wide), px(y.from-y.at(pt.y)), text(pt.hint))
		}
		return
	case p.stacked:
		p.area(w, i, class, path.String(), x, y)
		return
	case !p.noLines && len(s.points) > 1:
		fmt.Fprintf(w, `<path class="line %s" data-point="%d" d="%s"/>`+"\n", class, len(s.points), path.String())
	}
	few := len(s.points) <= 60
	for _, pt := range s.points {
		if !few && !p.noLines {
			break
		}
		kind := "dot "
		if pt.out {
			kind = "dot out "
		}
		fmt.Fprintf(w, `<circle class="%s" data-point="1" cx="%s" cy="%s" r="3"><title>%s</title></circle>`+"\n",
			kind+class, px(x.at(pt.x)), px(y.at(pt.y)), text(pt.hint))
	}
}

// area fills between a stacked series and the one below it.
func (p *plot) area(w *bytes.Buffer, i int, class, path string, x, y scale) {
	s := &p.series[i]
	var back bytes.Buffer
	for _, pt := range slices.Backward(s.points) {
		below := 0.0
		if i > 0 {
			if k := slices.IndexFunc(p.series[i-1].points, func(o point) bool { return o.x == pt.x }); k >= 0 {
				below = p.series[i-1].points[k].y
			}
		}
		fmt.Fprintf(&back, "L%s %s", px(x.at(pt.x)), px(y.at(below)))
	}
	fmt.Fprintf(w, `<path class="area %s" data-point="%d" d="%s%sZ"><title>%s</title></path>`+"\n", class, len(s.points), path, back.String(), text(s.name))
}

func (p *plot) legend(w *bytes.Buffer) {
	w.WriteString("<figcaption>")
	for i, s := range p.series {
		kind := ""
		if s.published {
			kind = " published"
		}
		fmt.Fprintf(w, `<span class="key c%d%s">%s</span> `, i%plotColors, kind, text(s.name))
	}
	if p.foot != "" {
		fmt.Fprintf(w, `<span class="foot">%s</span>`, text(p.foot))
	}
	w.WriteString("</figcaption>\n")
}

// px prints pixels with one digit after the point, so that the same plot has the same bytes everywhere.
func px(v float64) string { return fmt.Sprintf("%.1f", v) }

// short prints a value for an axis.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return fmt.Sprintf("%gM", math.Round(v/1e4)/100)
	case a >= 1e4:
		return fmt.Sprintf("%gk", math.Round(v/100)/10)
	case a >= 1000:
		return bench.Number(v)
	}
	return fmt.Sprintf("%.3g", v)
}

// text escapes what stands between tags or in an attribute.
func text(s string) string { return html.EscapeString(s) }
