package lint

import (
	"fmt"
	"strings"
)

// noticeHead begins the file NOTICE.
const noticeHead = `Millrace
Licensed under the Apache License, Version 2.0: see the file LICENSE.

The program millrace links the modules below, on one or more of the systems that it is built for. Their licenses and notices
follow. It also links the standard library of Go, whose license is the text of golang.org/x/sys. This file is written by
make generate, from go.mod and the files of the modules.

`

// rule parts the texts of NOTICE.
var rule = strings.Repeat("-", 80) + "\n"

// notice writes the file NOTICE: the modules with their licenses and copyright lines, then each text once.
func notice(modules []linked) (string, error) {
	var head, texts strings.Builder
	head.WriteString(noticeHead)
	// numbers are those of the texts that were written, by their words.
	numbers := map[string]int{}
	for _, m := range modules {
		if m.version == "" {
			// The main module's license is the file LICENSE.
			continue
		}
		ids := m.licenses()
		if len(ids) == 0 {
			return "", fmt.Errorf("%s %s has no license that license.go knows: read it, then add it there, or use another module", m.path, m.version)
		}
		fmt.Fprintf(&head, "%s %s\n    License: %s\n", m.path, m.version, strings.Join(ids, " AND "))
		for _, line := range m.copyrights() {
			fmt.Fprintf(&head, "    %s\n", line)
		}
		for _, t := range m.texts {
			// The words alone tell texts apart: modules break the lines of the same license in different places.
			words := strings.Join(strings.Fields(t.body), " ")
			n, known := numbers[words]
			if !known {
				n = len(numbers) + 1
				numbers[words] = n
				fmt.Fprintf(&texts, "\n%sText %d\n%s\n%s\n", rule, n, rule, strings.TrimRight(strings.Trim(t.body, "\n"), " \t\n"))
			}
			fmt.Fprintf(&head, "    %s: text %d\n", t.name, n)
		}
		head.WriteString("\n")
	}
	return strings.TrimRight(head.String(), "\n") + "\n" + texts.String(), nil
}
