"""Checks of 6.3: targets token by token with Python numbers, the gradient, and the mean and maximum as expectiles."""
import math

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=3,
    hints=["Follow one response from its last token to its first. What does the last token of the policy get? What do "
           "the others get?",
           "Each token of the policy bootstraps from the state before the NEXT token of the policy, which may be "
           "several columns later. Walk over the columns from the right, and carry along the number that the token to "
           "the left will need.",
           "The carried number starts as the reward. At a column with mask True: the target is the carried number, and "
           "the new carried number is gamma times the value of this column, detached. At a column with mask False: the "
           "target is 0, and the carried number stays. In the other function, the weight is tau where the error is at "
           "least 0, else 1 - tau.",
           "later = reward; for t in reversed(range(T)): y[:, t] = torch.where(mask[:, t], later, 0.0), then later = "
           "torch.where(mask[:, t], gamma * value[:, t], later). The weight is torch.where(error < 0, 1 - tau, tau)."])
NAN = math.nan


def cases(derive):
    """Return the cases, where derive says whether the values require gradients."""
    make = torch.Generator().manual_seed(0)
    found = [case(reward=torch.tensor([1.0]), value=torch.tensor([[0.25, 0.5, 0.75]]),
                  mask=torch.tensor([[True, True, True]]), gamma=0.5),
             case(reward=torch.tensor([2.0, -1.0]), value=torch.tensor([[0.25, 0.5, 0.75, 3.0], [0.5, 9.0, 1.0, 0.25]]),
                  mask=torch.tensor([[True, True, False, False], [True, False, True, True]]), gamma=0.5)]
    for batch, steps, gamma in ((5, 6, 0.9), (4, 7, 1.0)):
        mask = torch.rand(batch, steps, generator=make) < 0.6
        mask[0] = False
        mask[1, -1] = True
        value = torch.randn(batch, steps, generator=make)
        found.append(case(reward=torch.randn(batch, generator=make), mask=mask, gamma=gamma,
                          value=value if derive else torch.where(mask, value, NAN)))
    return [{**c, "value": c["value"].requires_grad_(derive)} for c in found]


values = exercise.function("token_targets", cases(derive=False))
gradients = exercise.function("token_targets", cases(derive=True))       # only when the numbers are right
losses = exercise.function("expectile_loss", [
    case(error=torch.tensor([2.0, -2.0, 0.0]), tau=0.75),
    case(error=torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).requires_grad_(), tau=0.9),
    case(error=torch.randn(5, generator=torch.Generator().manual_seed(2)).requires_grad_(), tau=0.2)])


@values.reference
@gradients.reference
def row_by_row(reward, value, mask, gamma):
    y = torch.zeros(value.shape)
    for b in range(len(reward)):
        own = [t for t in range(value.shape[1]) if mask[b, t]]
        for i, t in enumerate(own):
            y[b, t] = gamma * value[b, own[i + 1]].item() if i + 1 < len(own) else reward[b].item()
    return y


@losses.reference
def one_by_one(error, tau):
    return (abs(tau - (error < 0).float())) * error ** 2


values.extreme("Large rewards or values are clipped. The target is the value of the equation, however large it is.",
               reward=torch.tensor([300.0, -2000.0]), value=torch.tensor([[50.0, 900.0], [-70.0, -800.0]]),
               mask=torch.ones(2, 2, dtype=torch.bool), gamma=0.9)
losses.extreme("Large errors are clipped, as in the Huber loss. Square all errors without a limit.",
               error=torch.tensor([300.0, -2000.0]), tau=0.7)


def backwards(reward, value, mask, gamma, *, own_state=False, stops=True):
    """The solution with a mistake."""
    value = value.detach() if stops else value
    columns, later = [], reward
    for t in reversed(range(value.shape[1])):
        columns.append(torch.where(mask[:, t], gamma * value[:, t] if own_state else later, 0.0))
        later = torch.where(mask[:, t], gamma * value[:, t], later)
    return torch.stack(columns[::-1], 1)


def last_of(mask):
    """The last token of the policy in each row, `[B, T]` bool."""
    return (mask.flip(1).cumsum(1).flip(1) == 1) & mask


def shifted(value):
    return torch.cat([value[:, 1:], torch.zeros_like(value[:, :1])], 1)


@values.mistake("The mask is not used for the next state: you take the value of the next column, which may be a token "
                "of a tool or padding. Take the value of the next column with mask True.")
def _(reward, value, mask, gamma):
    y = torch.where(last_of(mask), reward[:, None], gamma * shifted(value))
    return torch.where(mask, y, 0.0)


@values.mistake("The reward is at the last column. It belongs to the last token of the policy in each row: padding may "
                "follow it.")
def _(reward, value, mask, gamma):
    y = backwards(torch.zeros_like(reward), value, mask, gamma)
    y[:, -1] = torch.where(mask[:, -1], reward, 0.0)
    return y


@values.mistake("The reward is at the last column, even where that is padding. It belongs to the last token of the "
                "policy in each row.")
def _(reward, value, mask, gamma):
    y = backwards(torch.zeros_like(reward), value, mask, gamma)
    y[:, -1] = reward
    return y


@values.mistake("There are two mistakes. The reward is at the last column; it belongs to the last token of the policy "
                "in each row. And you take the value of the next column, which may be a token of a tool or padding.")
def _(reward, value, mask, gamma):
    y = gamma * shifted(value)
    y[:, -1] = reward
    return torch.where(mask, y, 0.0)


@values.mistake("gamma is applied once for each column between two tokens of the policy. Tokens of a tool take no "
                "time; discount once for each token of the policy.")
def _(reward, value, mask, gamma):
    y = row_by_row(reward, value, mask, 1.0)
    for b in range(len(mask)):
        own = [t for t in range(mask.shape[1]) if mask[b, t]]
        for t, then in zip(own, own[1:], strict=False):
            y[b, t] *= gamma ** (then - t)
    return y


@values.mistake("gamma is applied at every column, also at tokens of a tool and at padding. Both take no time; carry "
                "the number through them unchanged.")
def _(reward, value, mask, gamma):
    columns, later = [], reward
    for t in reversed(range(value.shape[1])):
        columns.append(torch.where(mask[:, t], later, 0.0))
        later = gamma * torch.where(mask[:, t], value[:, t], later)
    return torch.stack(columns[::-1], 1)


@values.mistake("The bootstrap uses the value of the token's own state. Then Q and V only confirm each other; use the "
                "state before the next token of the policy.")
def _(reward, value, mask, gamma):
    return torch.where(last_of(mask), reward[:, None], torch.where(mask, gamma * value, 0.0))


@values.mistake("Every token gets the reward. Only the last token of the policy does; the others get it through V.")
def _(reward, value, mask, gamma):
    y = backwards(torch.zeros_like(reward), value, mask, gamma)
    return torch.where(mask, y + reward[:, None], 0.0)


@values.mistake("You bootstrap at the last token. It terminates the response, so its target is the reward alone.")
def _(reward, value, mask, gamma):
    y = backwards(reward, value, mask, gamma)
    return torch.where(last_of(mask), y + gamma * torch.where(mask, value, 0.0), y)


@values.mistake("gamma is missing: the next state comes one step later, so discount its value.")
def _(reward, value, mask, gamma):
    return backwards(reward, value, mask, 1.0)


@values.mistake("The reward is discounted too. gamma multiplies only the value of the next state.")
def _(reward, value, mask, gamma):
    return backwards(gamma * reward, value, mask, gamma)


@values.mistake("This is the return, a discounted sum of rewards. A TD target bootstraps: it takes V of the next state "
                "in place of what follows.")
def _(reward, value, mask, gamma):
    after = mask.flip(1).cumsum(1).flip(1) - 1                            # own tokens after this one
    return torch.where(mask, reward[:, None] * gamma ** after.clamp(min=0), 0.0)


@values.mistake("The targets are correct where the mask is True, but they must be 0 elsewhere.")
def _(reward, value, mask, gamma):
    columns, later = [], reward
    for t in reversed(range(value.shape[1])):
        columns.append(later)
        later = torch.where(mask[:, t], gamma * value[:, t], later)
    return torch.stack(columns[::-1], 1)


@gradients.mistake("The numbers are correct, but a gradient flows through the target into V. Then the loss of Q would "
                   "also move V towards Q; detach the values.")
def _(reward, value, mask, gamma):
    return backwards(reward, value, mask, gamma, stops=False)


@losses.mistake("tau is on the wrong side: a value above the estimate, a positive error, has the weight tau.")
def _(error, tau):
    return torch.where(error < 0, tau, 1 - tau) * error.square()


@losses.mistake("This is the loss of a quantile, with the absolute error. An expectile has the squared error.")
def _(error, tau):
    return torch.where(error < 0, 1 - tau, tau) * error.abs()


@losses.mistake("The loss has a factor 1/2 that the equation does not have.")
def _(error, tau):
    return 0.5 * torch.where(error < 0, 1 - tau, tau) * error.square()


@losses.mistake("The factor has no absolute value, so it is negative where the error is negative. Then the loss has no "
                "minimum.")
def _(error, tau):
    return (tau - (error < 0).float()) * error.square()


@losses.mistake("You ignore negative errors. Without them V has no reason to stay low; they have the weight 1 - tau.")
def _(error, tau):
    return torch.where(error < 0, 0.0, tau) * error.square()


@losses.mistake("This is one number. Return the loss of each error; the caller averages over the tokens in the mask.")
def _(error, tau):
    return (torch.where(error < 0, 1 - tau, tau) * error.square()).mean()


@exercise.property
def where_it_leads(student):
    """Raise Wrong unless the best estimate is the mean for tau = 0.5 and nearly the maximum for a tau near 1."""
    q, v = torch.tensor([0.0, 0.1, 0.2, 1.0], dtype=torch.float64), torch.linspace(0, 1, 2001, dtype=torch.float64)
    for tau, low, high in ((0.5, 0.324, 0.326), (0.999, 0.98, 1.0)):
        best = float(v[student.expectile_loss(q - v[:, None], tau).mean(1).argmin()])
        if not low <= best <= high:
            raise Wrong(f"for tau = {tau} the estimate with the smallest loss of the values 0, 0.1, 0.2 and 1 is "
                        f"{best:.3f}; it should be between {low} and {high}", "expectile_loss")
