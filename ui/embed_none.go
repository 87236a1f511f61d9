//go:build noui

package ui

import (
	"embed"
	"io/fs"
)

// Files returns no files: this program was built without the web interface.
func Files() fs.FS { return embed.FS{} }
