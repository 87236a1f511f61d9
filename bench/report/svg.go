package report

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"

	"github.com/millrace/millrace/bench"
)

// plot is one drawing: lines over a common axis, or areas on top of each other. It is drawn here
// and not by a library, because charting libraries load fonts and scripts, and the report must show
// the same on a machine without a network.
type plot struct {
	// title stands above the plot. x and y name the axes; y names the durability too, if it is of a
	// rate.
	title, x, y string
	// series are drawn in order, each in a colour of its own.
	series []series
	// stacked draws areas, each on top of the one before.
	stacked bool
	// logX makes each step of the x axis a factor.
	logX bool
	// names are those of the positions 0, 1, 2, ...; nil: positions are numbers.
	names []string
	// limits are lines across, such as a must.
	limits []mark
	// bars draws one bar for each point.
	bars bool
	// noLines draws the points alone.
	noLines bool
	// foot is a line below the plot.
	foot string
	// span is the range of x, if it is wider than the points.
	span [2]float64
}

// series is one line of a plot.
type series struct {
	// name stands in the legend.
	name string
	// points are in order of x, as a line connects them.
	points []point
	// published says that it is of another system: it is drawn dashed.
	published bool
}

// point is a value at a position, with what a pointer over it says.
type point struct {
	x, y float64
	// hint is shown when the pointer is over the point.
	hint string
	// out says that it is left out of the figures: it is drawn hollow.
	out bool
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
	// plotColors is the number of colours: classes c0 to c7 of the style sheet. Further series
	// begin with the first again.
	plotColors = 8
)

// scale turns values of one axis into pixels.
type scale struct {
	// low and high are the ends of the values, or of their logarithms when log is set.
	low, high float64
	// from and to are the pixels of low and high. An axis that goes up has the larger number first.
	from, to float64
	// log says that the axis is logarithmic, to the base 2.
	log bool
}

// at is the pixel of a value.
func (s scale) at(v float64) float64 {
	if s.log {
		v = math.Log2(v)
	}
	// All values are the same: they stand in the middle.
	if s.high == s.low {
		return (s.from + s.to) / 2
	}
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// empty reports whether there is nothing to draw.
func (p *plot) empty() bool {
	return !slices.ContainsFunc(p.series, func(s series) bool { return len(s.points) > 0 })
}

// draw writes the plot as SVG with its legend; nothing when it is empty. It stacks the series
// first, so that a plot is drawn once.
func (p *plot) draw(w *bytes.Buffer) {
	if p.empty() {
		return
	}
	p.stack()
	// The axes are made once and used by all parts, so that they lie over each other.
	x, y := p.scales()
	fmt.Fprintf(w, `<figure><svg class="plot" viewBox="0 0 %g %g" role="img" aria-label="%s">`+"\n", plotWidth, plotHeight, text(p.title))
	fmt.Fprintf(w, `<text class="title" x="%g" y="16">%s</text>`+"\n", marginLeft, text(p.title))
	p.grid(w, x, y)
	for i := range p.series {
		p.draw1(w, i, x, y)
	}
	// A limit is drawn last, so that no series hides it.
	for _, m := range p.limits {
		at := y.at(m.value)
		fmt.Fprintf(w, `<line class="limit" x1="%g" x2="%g" y1="%s" y2="%s"/><text class="limit" x="%g" y="%s">%s</text>`+"\n",
			x.from, x.to, px(at), px(at), x.to, px(at-4), text(m.name))
	}
	w.WriteString("</svg>\n")
	p.legend(w)
	w.WriteString("</figure>\n")
}

// stack adds to each point of a stacked plot what lies below it at the same x. It replaces the
// points, since callers may share them.
func (p *plot) stack() {
	if !p.stacked {
		return
	}
	// below is the height reached so far, by x.
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

// scales makes the axes: x over all points, y from 0 to a round number above the largest value and limit.
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
	// Names have half a step of room on both sides, which bars need.
	if p.names != nil {
		low, high = -0.5, float64(len(p.names))-0.5
	}
	if p.logX {
		low, high = math.Log2(low), math.Log2(high)
	}
	// About four lines across, with a little room above the largest value.
	step := niceStep(top / 4)
	top = step * math.Ceil(top/step*1.02)
	return scale{low, high, marginLeft, plotWidth - marginRight, p.logX}, scale{0, top, plotHeight - marginBottom, marginTop, false}
}

// niceStep rounds v up to 1, 2, 5 or 10 times a power of ten. What has no such step gets 1.
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

// grid draws the lines across, the ticks of both axes, and their names.
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

// ticks are the named positions of the x axis: the names, or each position where there are few, or
// round numbers.
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

// draw1 draws series i: bars, an area, or a line with its points. A long line has no points, which
// would hide it.
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
		// wide is the width of a bar: the bars of a position take four fifths of its room together.
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
	// More points than these would hide the line.
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

// area fills between a stacked series and the one below it: along the top from left to right, and
// back along the series below.
func (p *plot) area(w *bytes.Buffer, i int, class, path string, x, y scale) {
	s := &p.series[i]
	var back bytes.Buffer
	for _, pt := range slices.Backward(s.points) {
		below := 0.0
		if i > 0 {
			// A series that has no point at this x counts as 0 there.
			if k := slices.IndexFunc(p.series[i-1].points, func(o point) bool { return o.x == pt.x }); k >= 0 {
				below = p.series[i-1].points[k].y
			}
		}
		fmt.Fprintf(&back, "L%s %s", px(x.at(pt.x)), px(y.at(below)))
	}
	fmt.Fprintf(w, `<path class="area %s" data-point="%d" d="%s%sZ"><title>%s</title></path>`+"\n", class, len(s.points), path, back.String(), text(s.name))
}

// legend writes the names of the series and the line below the plot.
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

// px prints pixels with one digit after the point: the same plot has the same bytes on every machine.
func px(v float64) string { return fmt.Sprintf("%.1f", v) }

// short prints a value for an axis, with k and M for large ones.
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
