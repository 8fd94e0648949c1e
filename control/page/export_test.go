package page

import "time"

func init() { heartbeat = 500 * time.Millisecond }
