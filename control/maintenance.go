package control

import (
	"context"
	"net/http"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/hosts/audit"
	"croft/internal/wording"
	"croft/tenant/access"
	"croft/trust/invitation"
)

var auditOperations = noun{Tag: "audit",
	Description: "The comparison of all records with what hosts and Placement have. For operators.",
	Operations: []Operation{
		do(Operation{ID: "auditCloud", At: "GET /v1/audit", May: access.Operates, Long: true,
			Summary:     "Compare records, orders, claims, guests and disks of all hosts",
			Description: "A change in progress is no difference. It takes some seconds."},
			func(ctx context.Context, c *call, _ nothing) (audit.Report, error) {
				return audited(ctx, c.Cloud.Auditor.Audit)
			}),
		do(Operation{ID: "repairCloud", At: "POST /v1/audit", May: access.Operates, Long: true,
			Summary: "Compare, and mend what no guest and no disk on record can suffer from",
			Description: "Only differences that this comparison found are repaired, and each change compares that " +
				"nothing has changed since. So asking again is no error, and finishes what was interrupted."},
			func(ctx context.Context, c *call, _ nothing) (audit.Report, error) {
				return audited(ctx, c.Cloud.Auditor.Repair)
			}),
	},
}

var invitationOperations = noun{Tag: "invitations",
	Description: "Tokens with which machines join the cloud as hosts. For operators.",
	Operations: []Operation{
		list(Operation{ID: "listInvitations", At: "GET /v1/invitations", May: access.Operates,
			Summary: "List the join tokens that count"}, listInvitations),
		do(Operation{ID: "createInvitation", At: "POST /v1/invitations", May: access.Operates,
			Fails:       []int{http.StatusNotFound},
			Summary:     "Make a token with which machines join the cloud as hosts",
			Description: "The answer has the secret, once.", Status: http.StatusCreated}, createInvitation),
		do(Operation{ID: "revokeInvitation", At: "DELETE /v1/invitations/{name}", May: access.Operates,
			Summary: "Revoke a join token at once", Description: "Hosts that joined with it stay."}, revokeInvitation),
	},
}

// auditTime bounds an audit, which asks the agents of many hosts.
const auditTime = 10 * time.Minute

func audited(ctx context.Context, look func(context.Context) (audit.Report, error)) (audit.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTime)
	defer cancel()
	report, err := look(ctx)
	report.Differences = append([]audit.Difference{}, report.Differences...) // never null
	return report, err
}

func listInvitations(ctx context.Context, c *call, _ nothing) (api.InvitationList, error) {
	all, err := c.Cloud.Tokens.List(ctx)
	return api.InvitationList{Invitations: append([]api.Invitation{}, all...)}, err // never null
}

func createInvitation(ctx context.Context, c *call, in api.NewInvitation) (api.Invitation, error) {
	life, err := wording.ParseDuration(in.Life)
	if err != nil || life < time.Second || life > invitation.LongestLife {
		return api.Invitation{}, croft.Errorf(croft.Invalid, "life is %.40q: use a duration from 1s to %s", in.Life,
			wording.Duration(invitation.LongestLife))
	}
	made, err := c.Cloud.Tokens.Invite(ctx, in, life)
	if err == nil {
		c.action.about("", actions.Object{Kind: actions.Invitation, ID: made.Name, Name: in.Host})
	}
	return made, err
}

func revokeInvitation(ctx context.Context, c *call, in api.InvitationNamed) (api.Invitation, error) {
	c.action.about("", actions.Object{Kind: actions.Invitation}) // the given name may be a whole token
	ended, err := c.Cloud.Tokens.Revoke(ctx, in.Name)
	c.action.object.ID = ended.Name
	return ended, err
}
