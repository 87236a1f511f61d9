package edge

import (
	"strconv"
	"strings"
)

// numbers lists the numbers of nodes, separated by commas.
func numbers(list []uint64) string {
	text := make([]string, len(list))
	for i, n := range list {
		text[i] = strconv.FormatUint(n, 10)
	}
	return strings.Join(text, ",")
}
