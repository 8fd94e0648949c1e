package api

import (
	"time"

	"croft"
	"croft/cluster"
)

// Cluster is a cluster without its secrets. Lengths of time are in seconds.
type Cluster struct {
	cluster.Cluster
	// seconds that it is kept without uses; 0: forever
	KeepIdle      cluster.Seconds `json:"keep_idle,omitempty"`
	SecretOutputs []string        `json:"secret_outputs,omitempty"` // names of sealed outputs, in order
	Settled       bool            `json:"settled"`                  // no change is in progress
	Reused        bool            `json:"reused,omitempty"`         // whether the request was answered with a cluster that existed
}

// ClusterOf returns a cluster as the API shows it.
func ClusterOf(c cluster.Cluster) Cluster {
	c.Appliance = cluster.ApplianceName(c.Appliance)
	secret := c.SecretOutputs()
	c.Sealed, c.Digest = nil, "" // a digest reveals secrets that are easy to guess
	c.Members, c.Uses = append([]cluster.Member{}, c.Members...), append([]cluster.Use{}, c.Uses...)
	return Cluster{Cluster: c, KeepIdle: cluster.Seconds(c.KeepIdle), SecretOutputs: secret, Settled: c.Settled()}
}

// Plain returns the cluster for a client. Secret outputs have names but no values.
func (c Cluster) Plain() cluster.Cluster {
	c.Cluster.KeepIdle = time.Duration(c.KeepIdle)
	for _, name := range c.SecretOutputs {
		if c.Cluster.Sealed == nil {
			c.Cluster.Sealed = map[string]cluster.Sealed{}
		}
		c.Cluster.Sealed[name] = nil
	}
	return c.Cluster
}

// ClusterList has clusters.
type ClusterList struct {
	Clusters []Cluster `json:"clusters"` // by name
}

// ClusterNamed names a cluster.
type ClusterNamed struct {
	InProject

	ID string `path:"id" json:"-"` // UUID of the cluster, or its name
}

// ClusterWait says how long to wait until no operation on the cluster is in progress.
type ClusterWait struct {
	Wait int `query:"wait" json:"-" minimum:"1" maximum:"600"` // longest wait in seconds; no wait by default
}

// ClusterAwaited is the input of getCluster.
type ClusterAwaited struct {
	ClusterNamed
	ClusterWait
}

// ClusterFilter is the input of listClusters.
type ClusterFilter struct {
	InProject

	// State selects the clusters in a state.
	State     cluster.State `query:"state"     json:"-" enum:"SCHEDULING,BUILDING,READY,RESIZING,DEGRADED,ERROR,DELETING"`
	Appliance string        `query:"appliance" json:"-" maxLength:"63"` // only clusters of this appliance
	Site      string        `query:"site"      json:"-" maxLength:"63"` // only clusters at this site
}

// NewCluster is the input of createCluster.
type NewCluster struct {
	InProject
	ClusterWait
	ClusterRequest
}

// ClusterCandidates is the input of explainCluster.
type ClusterCandidates struct {
	InProject
	ClusterRequest
}

// ClusterRemoval is the input of deleteCluster.
type ClusterRemoval struct {
	ClusterNamed

	// Force deletes the cluster although others use it. For its user and for admins of the project.
	Force bool `query:"force" json:"-"`
	// Abandon forgets the cluster without asking its site, so the rest of it stays there. For its user and for admins
	// of the project.
	Abandon bool `query:"abandon" json:"-"`
}

// ClusterHostNamed names a slave of a cluster.
type ClusterHostNamed struct {
	ClusterNamed

	Host string `path:"host" json:"-"` // UUID or name of a slave, or last
}

// UseNamed names a use of a cluster.
type UseNamed struct {
	ClusterNamed

	Use cluster.UseID `path:"use" json:"-"` // UUID of the use
}

// OutputNamed names an output of a cluster.
type OutputNamed struct {
	ClusterNamed

	Output string `path:"output" json:"-"` // name of the output
}

// ClusterRequest describes a wanted cluster.
type ClusterRequest struct {
	// The UUID that the cluster gets. A random one by default.
	ID croft.ClusterID `json:"id,omitempty" format:"uuid"`
	// Of a to z, 0 to 9 and dashes, beginning with a letter. Unique in the project.
	Name      string `json:"name" maxLength:"63" minLength:"1"`
	Appliance string `json:"appliance" maxLength:"63" minLength:"1"` // what it runs
	// The number of hosts in addition to the master; 0 by default.
	Slaves int           `json:"slaves,omitempty" maximum:"1000" minimum:"0"`
	Hints  cluster.Hints `json:"hints,omitzero"` // where to build it
	// For the template.
	Parameters map[string]any `json:"parameters,omitempty" maxProperties:"256"`
	// Public SSH keys that may log in, as lines of authorized_keys.
	Keys     []string        `json:"keys,omitempty" maxItems:"100" maxLength:"16384" minLength:"1"`
	Reuse    string          `json:"reuse,omitempty" enum:"auto,never"`                   // auto or never
	KeepIdle cluster.Seconds `json:"keep_idle,omitempty" maximum:"315360000" minimum:"0"` // seconds
	Expires  cluster.Seconds `json:"expires,omitempty" maximum:"315360000" minimum:"0"`   // seconds after the request
}

// ClusterRequestOf returns the body for a request.
func ClusterRequestOf(r cluster.Request) ClusterRequest {
	return ClusterRequest{ID: r.ID, Name: r.Name, Appliance: r.Appliance, Slaves: r.Slaves, Hints: r.Hints,
		Parameters: r.Parameters, Keys: r.Keys, Reuse: string(r.Reuse), KeepIdle: cluster.Seconds(r.KeepIdle),
		Expires: cluster.Seconds(r.Expires)}
}

// Plain returns the request of a user in a project.
func (r ClusterRequest) Plain(project croft.Project, user string) cluster.Request {
	asked := cluster.Request{ID: r.ID, Name: r.Name, Project: project, User: user, Appliance: r.Appliance,
		Slaves: r.Slaves, Hints: r.Hints, Parameters: r.Parameters, Keys: r.Keys,
		KeepIdle: time.Duration(r.KeepIdle), Expires: time.Duration(r.Expires)}
	if r.Reuse == string(cluster.ReuseNever) {
		asked.Reuse = cluster.ReuseNever
	}
	return asked
}

// ClusterChange is the input of changeCluster.
type ClusterChange struct {
	ClusterNamed
	cluster.Change

	Base *int64 `header:"If-Match" json:"-"` // generation that the change builds on; nil: any
}

// ClusterEventList has the events of a cluster.
type ClusterEventList struct {
	Events []cluster.Event `json:"events"` // the oldest first
}

// ClusterOutput is an output of a cluster, only for its user.
type ClusterOutput struct {
	Name string `json:"name"` // of the output
	// What the template puts out.
	Value any `json:"value"`
	// It is kept sealed, and is in no other answer.
	Secret bool `json:"secret"`
}

// ClusterAccount is an account on the machines of a cluster, only for its user.
type ClusterAccount struct {
	Username string `json:"username"` // at the site
	// For the user of the account alone.
	Password string `json:"password"`
}
