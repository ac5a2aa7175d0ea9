"""Checks of 2.1: the correct answers come from exercises/symptoms/2_1_value_function.json or follow from eq. 16."""
from spinup.exercises.checks import Exercise, case

exercise = Exercise(
    kind="predict", minutes=(10, 20), difficulty=2,
    hints=["Set V = 0 in the equation, once for lambda = 1 and once for lambda = 0.95. What remains?",
           "A baseline that depends only on the state multiplies grad log pi, and grad log pi has mean 0 in every "
           "state. So ask two separate questions. What does the baseline do to the mean of the gradient? What does it "
           "do to its variance?",
           "With V = 0 each delta is a reward, and the weights of later deltas are (gamma * lambda)^l. With lambda = "
           "1, V cancels out of the sum except for its first term, -V(s_t), if the episode terminates. A good V "
           "subtracts the expected return, so only the unexpected part remains.",
           "In CartPole, early steps of an episode have large returns and late steps have small ones, whatever the "
           "actions were. Subtracting one mean from all returns keeps this difference. Subtracting V(s_t) removes it. "
           "The difference is noise, not a wrong direction. And 1 / (1 - 0.99 * 0.95) is about 17."])


class Unusable(Exception):
    """Raised for an answer that is not a, b or c. A check shows only the text of an error with this name."""


def letter(answer):
    """Return the answer as a small letter; Unusable, which does not reveal the correct answer, for an answer
    that is not a, b or c."""
    if (found := str(answer).strip().lower().rstrip(".:)")) not in ("a", "b", "c"):
        raise Unusable('the answer is one of "a", "b", "c"; return this letter alone')
    return found


def question(name, right, **wrong):
    asked = exercise.function(name, [case()], view=letter)
    asked.reference(lambda: right)
    for answer, message in wrong.items():
        asked.mistake(message)(lambda answer=answer: answer)


question(
    "learns_faster", "a",
    b="The measurement shows the opposite. V does not choose actions, but it determines how noisy the advantages are. "
      "If V has learned nothing, the noise drives the policy.",
    c="The measurement shows a difference. Normalising advantages subtracts one number from all advantages of a batch; "
      "the expected return differs from state to state.")
question(
    "noise", "c",
    a="The episodes are equal, but the advantages are not. Without a trained V each action gets credit for the whole "
      "return; with it, only for the difference from the expected return.",
    b="V is not a source of noise here: it is a fixed number for each state. The returns are noisy: they differ "
      "between states and episodes for reasons unrelated to the action. An untrained V leaves all of this noise.")
question(
    "direction", "b",
    a="With lambda = 1 and episodes that terminate, V appears only as -V(s_t), and the action does not affect it. "
      "Averaged over actions, grad log pi times any function of the state alone is 0.",
    c="Advantages are smaller than returns, but the mean gradient is the same with both. The part that V "
      "removes has mean 0 when it is multiplied by grad log pi.")
question(
    "what_is_left", "b",
    a="This is true for lambda = 1. Below 1, the weights of later steps decrease faster, and V must estimate the rest; "
      "V = 0 estimates that no reward follows.",
    c="This is true for lambda = 0. Above 0, later deltas count too, and each contains its own reward.")
