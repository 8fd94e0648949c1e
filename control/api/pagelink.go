package api

import "time"

// PageLink is a link that logs a browser in to the page.
type PageLink struct {
	URL     string    `json:"url"`     // address of the page, which logs in once
	Expires time.Time `json:"expires"` // when the link expires
}
