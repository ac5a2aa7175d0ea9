"""Checks of 6.4: each token of each game, in Python."""
import torch

from spinup.exercises.checks import Exercise, case

exercise = Exercise(
    minutes=(10, 20), difficulty=2,
    hints=["Write a game as a row of letters: O for the opening, L for the learner, P for the opponent. Which letters "
           "are actions of the policy?",
           "Three conditions decide the mask of a token: whose turn it is, whether the opening is over, and whether "
           "the game still runs. The last action is not always the last token of the game.",
           "Let t count the columns from 0. The parity of t names the player. Compare t with opening and with lengths. "
           "For the rewards, count the learner's tokens from each column to the end: at the last one this count is 1.",
           "t = torch.arange(columns); t % 2 == seat[:, None] is the first of three conditions. "
           "mask.long().flip(1).cumsum(1).flip(1) counts the own tokens from each column on."])
make = torch.Generator().manual_seed(0)


def whole(*numbers):
    return torch.tensor(numbers)


def chance(n, columns):
    """Return random games: lengths, openings and seats of `n` games, in a batch of this width."""
    lengths = torch.randint(1, columns + 1, (n,), generator=make)
    opening = (torch.rand(n, generator=make) * lengths).long()
    return {"lengths": lengths, "opening": opening, "seat": torch.randint(2, (n,), generator=make), "columns": columns}


masks = exercise.function("learner_mask", [
    case(lengths=whole(5, 4, 2), opening=whole(0, 1, 1), seat=whole(0, 1, 0), columns=6),
    case(lengths=whole(6), opening=whole(3), seat=whole(1), columns=6),
    case(**chance(40, 9)), case(**chance(12, 5))])


@masks.reference
def token_by_token(lengths, opening, seat, columns):
    rows = [[False] * columns for _ in lengths]
    for row, length, begun, player in zip(rows, lengths.tolist(), opening.tolist(), seat.tolist(), strict=True):
        for t in range(begun, length):
            row[t] = t % 2 == player
    return torch.tensor(rows)


def parts(lengths, opening, seat, columns):
    t = torch.arange(columns)
    return t % 2 == seat[:, None], t >= opening[:, None], t < lengths[:, None]


@masks.mistake("The opponent's tokens are marked as actions of the learner. Then the policy learns moves that it did "
               "not choose; the players write in turn, so look at the parity of the column.")
def _(lengths, opening, seat, columns):
    turn, begun, running = parts(lengths, opening, seat, columns)
    return begun & running & (turn | True)


@masks.mistake("You have exchanged the seats: the first player writes tokens 0, 2, 4, ..., and its seat is 0.")
def _(lengths, opening, seat, columns):
    turn, begun, running = parts(lengths, opening, seat, columns)
    return ~turn & begun & running


@masks.mistake("Random moves of the opening are marked as actions. The policy did not choose them; leave them out.")
def _(lengths, opening, seat, columns):
    turn, _, running = parts(lengths, opening, seat, columns)
    return turn & running


@masks.mistake("Padding after the end of a game is marked as an action; compare the column with lengths.")
def _(lengths, opening, seat, columns):
    turn, begun, _ = parts(lengths, opening, seat, columns)
    return turn & begun


@masks.mistake("You count the turns from the end of the opening. The players also alternate within the opening, so the "
               "column itself decides whose turn it is.")
def _(lengths, opening, seat, columns):
    _, begun, running = parts(lengths, opening, seat, columns)
    return ((torch.arange(columns) - opening[:, None]) % 2 == seat[:, None]) & begun & running


@masks.mistake("The token at column `opening` is missing: the opening has the columns 0 to opening - 1.")
def _(lengths, opening, seat, columns):
    turn, _, running = parts(lengths, opening, seat, columns)
    return turn & running & (torch.arange(columns) > opening[:, None])


@masks.mistake("The column after the end of a game is marked as an action: a game has the columns 0 to lengths - 1.")
def _(lengths, opening, seat, columns):
    turn, begun, _ = parts(lengths, opening, seat, columns)
    return turn & begun & (torch.arange(columns) <= lengths[:, None])


SHOWN = torch.tensor([[1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]]).bool()
rewards = exercise.function("learner_rewards", [
    case(result=torch.tensor([1.0, -1.0, -1.0]), mask=SHOWN),
    case(result=torch.tensor([-1.0, 1.0]), mask=torch.tensor([[False, False, True], [True, False, False]])),
    *(case(result=torch.randint(-1, 2, (n,), generator=make).float(), mask=token_by_token(**chance(n, columns)))
      for n, columns in ((30, 8), (9, 4)))])


@rewards.reference
def game_by_game(result, mask):
    rows = [[0.0] * mask.shape[1] for _ in mask]
    for row, earned, own in zip(rows, result.tolist(), mask.tolist(), strict=True):
        if any(own):
            row[max(t for t, mine in enumerate(own) if mine)] = earned
    return torch.tensor(rows)


@rewards.mistake("Every token of the learner gets the result. Then a return is the result times the number of moves "
                 "that are left; only the last action gets it.")
def _(result, mask):
    return torch.where(mask, result[:, None], 0.0)


@rewards.mistake("The result is in the last column of the batch. It must be at the last token of the learner, or the "
                 "learner never gets it.")
def _(result, mask):
    found = torch.zeros(mask.shape)
    found[:, -1] = result
    return found


@rewards.mistake("The result is at the first token of the learner. Later actions then get nothing; it belongs to the "
                 "last one.")
def _(result, mask):
    return torch.where(mask & (mask.long().cumsum(1) == 1), result[:, None], 0.0)


@rewards.mistake("Tokens of the opponent before the learner's last token get the result too: their count of own tokens "
                 "that are left is also 1. Select by the mask as well.")
def _(result, mask):
    return torch.where(mask.long().flip(1).cumsum(1).flip(1) == 1, result[:, None], 0.0)


@rewards.mistake("Tokens after the learner's last token get the result too, also in the padding: the count of own "
                 "tokens no longer changes there. Select by the mask as well.")
def _(result, mask):
    count = mask.long().cumsum(1)
    return torch.where(count == count[:, -1:], result[:, None], 0.0)


@rewards.mistake("A game in which the learner chose nothing gets a reward, at its first token. There is no action that "
                 "could have earned it; leave such a row at 0.")
def _(result, mask):
    last = (mask.long() * torch.arange(mask.shape[1])).argmax(1)
    return torch.zeros(mask.shape).scatter(1, last[:, None], result[:, None])
