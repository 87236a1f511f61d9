// Package ui holds the built files of the web interface, which a server shows below /ui/ of its REST listener.
//
// The files in dist are committed, so that a program is built without Node. Their sources are in web.
package ui
