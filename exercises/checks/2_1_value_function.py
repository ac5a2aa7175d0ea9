"""Checks of 2.1: answers are what exercises/symptoms/2_1_value_function.json holds, or what follows from eq. 16."""
from spinup.exercises.checks import Exercise, case

exercise = Exercise(
    kind="predict", minutes=(10, 20), difficulty=2,
    hints=["Put V = 0 into the equation, once for lambda = 1 and once for lambda = 0.95, and see what remains.",
           "A baseline that depends on the state alone multiplies grad log pi, whose mean is 0 in every state. So ask "
           "two things apart: what it does to the mean of the gradient, and what it does to its variance.",
           "With V = 0 each delta is a reward, and the weights of later deltas are (gamma * lambda)^l. With lambda = "
           "1, V cancels out of the sum but for its first term, -V(s_t). A good V makes that what was expected, so "
           "that only the surprise is left.",
           "Early steps of an episode in CartPole have large returns, late ones small, whatever the actions were. "
           "Subtracting one mean from all leaves that in; subtracting V(s_t) takes it out. It is noise, not a wrong "
           "direction. And 1 / (1 - 0.99 * 0.95) is about 17."])


def letter(answer):
    """The answer in small letters; ValueError, which does not tell the right one, where it is none of them."""
    if (found := str(answer).strip().lower().rstrip(".:)")) not in ("a", "b", "c"):
        raise ValueError('the answer is one of "a", "b", "c"')
    return found


def question(name, right, **wrong):
    asked = exercise.function(name, [case()], view=letter)
    asked.reference(lambda: right)
    for answer, message in wrong.items():
        asked.mistake(message)(lambda answer=answer: answer)


question(
    "learns_faster", "a",
    b="Measured, it is not so. The policy cannot learn from V alone, but what V says decides how much noise the "
      "advantages carry; with a V that says nothing, the policy follows the noise.",
    c="Measured, it is not so. Whitening subtracts one number from all advantages of a batch; what is expected differs "
      "from state to state.")
question(
    "noise", "c",
    a="The episodes are the same, the advantages are not: in one case each action is blamed or praised for the whole "
      "return, in the other for what differs from what was expected.",
    b="V is no source of noise here: it is a number for each state. Returns are the source, since they differ between "
      "states and episodes for reasons that the action has no part in; a V that says nothing leaves all of that in.")
question(
    "direction", "b",
    a="With lambda = 1 and whole episodes, V enters as -V(s_t) alone, which the action has no influence on. In the "
      "mean over actions, grad log pi times anything that depends on the state alone is 0.",
    c="Advantages are smaller than returns, and still the mean gradient is as long with either: the part that V takes "
      "away has a mean of 0 when multiplied by grad log pi.")
question(
    "what_is_left", "b",
    a="That is so for lambda = 1. Below 1, the weights of later steps fall faster, and V is to say what they no longer "
      "do; V = 0 says that nothing comes later.",
    c="That is so for lambda = 0. Above 0, later deltas count too, each with its own reward in it.")
