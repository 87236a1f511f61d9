package main

import (
	"strings"
	"unicode/utf8"
)

const (
	// sparkWidth is how many half minutes a spark line has at most.
	sparkWidth = 30
	// sparkHead is the head of the column of spark lines.
	sparkHead = "last 15 min"
)

// sparkBlocks are the heights of a spark line. A half minute without a completion is a blank.
var sparkBlocks = []rune(" ▁▂▃▄▅▆▇█")

// sparkLine draws the newest counts, at most width of them: the greatest one is the highest.
func sparkLine(counts []uint32, width int) string {
	counts = counts[max(len(counts)-width, 0):]
	var most uint64
	for _, n := range counts {
		most = max(most, uint64(n))
	}
	var b strings.Builder
	for _, n := range counts {
		height := uint64(0)
		if n > 0 {
			top := uint64(len(sparkBlocks) - 1)
			height = (uint64(n)*top + most - 1) / most // what is not 0 is seen
		}
		b.WriteRune(sparkBlocks[height])
	}
	return b.String()
}

// addSparks adds spark lines behind the lines of a table, the first of which is its head. The newest half minutes of all are in one column.
// It adds none where the terminal has no room for its head; columns: its width, 0 = any.
func addSparks(lines []string, views []topView, columns int) []string {
	most, width := 0, sparkWidth
	for _, line := range lines {
		most = max(most, utf8.RuneCountInString(line))
	}
	if columns > 0 {
		width = min(width, columns-most-2)
	}
	if width < len(sparkHead) {
		return lines
	}
	for i := range lines {
		cell := sparkHead
		if i > 0 {
			cell = sparkLine(views[i-1].Spark, width)
			cell = strings.Repeat(" ", width-utf8.RuneCountInString(cell)) + cell
		}
		lines[i] = strings.TrimRight(lines[i]+strings.Repeat(" ", most-utf8.RuneCountInString(lines[i])+2)+cell, " ")
	}
	return lines
}
