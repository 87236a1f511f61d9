package refs

// match reports whether name matches glob: * stands for any bytes within a component, ** for any
// bytes, slashes too. Time is at most the product of both lengths, since only the last star of each
// kind is ever tried again: an earlier one could not match more than the last one does.
func match(glob, name string) bool {
	// starG and deepG are where the glob goes on after the last star of each kind; -1: there is
	// none to go back to. A ** makes an earlier * useless.
	g, n := 0, 0
	starG, starN := -1, 0 // after the last *, and up to where it reaches
	deepG, deepN := -1, 0 // the same of the last **
	for {
		switch {
		case g+1 < len(glob) && glob[g] == '*' && glob[g+1] == '*':
			g += 2
			deepG, deepN = g, n
			starG = -1
			continue
		case g < len(glob) && glob[g] == '*':
			g++
			starG, starN = g, n
			continue
		case n == len(name) && g == len(glob):
			return true
		case n < len(name) && g < len(glob) && glob[g] == name[n]:
			g++
			n++
			continue
		}
		switch {
		case starG >= 0 && starN < len(name) && name[starN] != '/':
			starN++
			g, n = starG, starN
		case deepG >= 0 && deepN < len(name):
			deepN++
			starG = -1
			g, n = deepG, deepN
		default:
			return false
		}
	}
}

// matchAny reports whether name matches one of globs.
func matchAny(globs []string, name string) bool {
	for _, glob := range globs {
		if match(glob, name) {
			return true
		}
	}
	return false
}
