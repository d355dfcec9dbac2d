"""From a question to a prompt: chat messages or plain text, with the answer format asked for once. No torch."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from lagproof.errors import ConfigError
from lagproof.grading.extract import Form
from lagproof.tasks.task import Problem
from lagproof.tasks.words import word_problem

INSTRUCTIONS = {
    Form.BOXED: "Please reason step by step, and put your final answer within \\boxed{}.",
    Form.MARKED: 'Please reason step by step, and end with a line "Answer: " followed by your final answer.',
    Form.WHOLE: "Give the final answer and nothing else.",
}
_ASKS = {Form.BOXED: ("\\boxed",), Form.MARKED: ("Answer:", "answer is", "####"), Form.WHOLE: ()}
_EXAMPLES = 3
_LONGEST = 16
_OWN = {"conversation", "messages", "chat_template", "tokenize", "add_generation_prompt", "continue_final_message"}
_OWN |= {"tools", "documents", "return_tensors", "return_dict", "padding", "truncation", "max_length"}
_OWN |= {"return_assistant_tokens_mask", "tokenizer_kwargs"}
_QUESTION, _ANSWER = "Question:", "Answer:"


@dataclass(frozen=True)
class Prompting:
    """How questions are put.

    Attributes:
        style: ``chat`` (messages for the model's chat template) or ``plain`` (text).
        form: how the answer is to be marked.
        instruction: sentence that asks for the form; ``None`` takes the usual one. It is left out where the question
            already asks for that form, and where it is empty.
        system: system message, chat only, in the place of the question's own; ``None`` keeps that, empty takes it away.
        shots: worked examples in front, of our own word problems.
        template: arguments of the model's chat template, chat only.
    """

    style: str = "chat"
    form: Form = Form.BOXED
    instruction: str | None = None
    system: str | None = None
    shots: int = 0
    template: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.system is not None and self.style == "plain":
            raise ConfigError("task.system is a chat message: leave it out, or set task.prompt = 'chat'")
        if self.template and self.style == "plain":
            raise ConfigError("task.chat_template_kwargs is for chat: leave it out, or set task.prompt = 'chat'")
        if own := sorted(_OWN & self.template.keys()):
            raise ConfigError(f"task.chat_template_kwargs.{own[0]}: is set by lagproof itself; leave it out")

    def prompt(self, question: str | Sequence[Mapping[str, str]]) -> str | list[dict[str, str]]:
        """The prompt of a question."""
        if self.style == "plain":
            text = question if isinstance(question, str) else "\n\n".join(m["content"] for m in question)
            return self._plain(text)
        messages = [{"role": "user", "content": question}] if isinstance(question, str) else list(map(dict, question))
        messages[-1] = {**messages[-1], "content": self._asked(messages[-1]["content"])}
        own = list(takewhile(lambda message: message["role"] == "system", messages[:-1]))
        shots = [
            {"role": role, "content": content}
            for question, answer in self.examples()
            for role, content in (("user", self._asked(question)), ("assistant", answer))
        ]
        return self._system(own) + shots + messages[len(own) :]

    @property
    def stop(self) -> tuple[str, ...]:
        """What ends an answer: in plain text, which a model may continue for ever, the next question."""
        return () if self.style == "chat" else (f"\n{_QUESTION}",)

    def truncate(self, response: str) -> str:
        """A response up to what ends an answer, also where it was sampled without that."""
        for string in self.stop:
            response = response.split(string, 1)[0]
        return response

    def examples(self) -> list[tuple[str, str]]:
        """Worked examples: question and answer in the form that is asked for."""
        problems = [word_problem(0, _EXAMPLES, i, largest=30, held_out=False) for i in range(self.shots)]
        return [(p.question, worked(p.step, p.answer, self.form)) for p in problems]

    def _system(self, own: list[dict[str, str]]) -> list[dict[str, str]]:
        if self.system is None:
            return own
        return [{"role": "system", "content": self.system}] if self.system else []

    def _plain(self, question: str) -> str:
        """Behind the question, or in front of the examples; these show the form, so only one of one's own is said."""
        instruction = self._instruction(question)
        if not self.shots:
            return f"{_QUESTION} {question.strip()}{' ' + instruction if instruction else ''}\n{_ANSWER}"
        first = f"{instruction}\n\n" if instruction and self.instruction is not None else ""
        head = "".join(f"{_QUESTION} {q}\n{_ANSWER} {a}\n\n" for q, a in self.examples())
        return f"{first}{head}{_QUESTION} {question.strip()}\n{_ANSWER}"

    def _asked(self, question: str) -> str:
        instruction = self._instruction(question)
        return f"{question.rstrip()}\n{instruction}" if instruction else question

    def _instruction(self, question: str) -> str:
        instruction = INSTRUCTIONS[self.form] if self.instruction is None else self.instruction
        return "" if any(word in question for word in _ASKS[self.form]) else instruction


def worked(step: str, answer: str, form: Form) -> str:
    """A worked answer that ends as ``form`` asks."""
    if form is Form.WHOLE:
        return answer
    end = f"The answer is \\boxed{{{answer}}}." if form is Form.BOXED else f"The answer is {answer}."
    return f"{step}. {end}"


def representatives(problems: Iterable[Problem]) -> list[Problem]:
    """A few problems that tell of all whether a model can read them.

    They are the longest ones, and one of each task and order of roles: a chat template may refuse a system message,
    or two turns of one role.
    """
    found: dict[tuple[str, ...], Problem] = {}
    longest: list[tuple[int, int, Problem]] = []
    for number, problem in enumerate(problems):
        texts = [problem.prompt] if isinstance(problem.prompt, str) else [m["content"] for m in problem.prompt]
        roles = [] if isinstance(problem.prompt, str) else [m["role"] for m in problem.prompt]
        found.setdefault((problem.task, *roles), problem)
        heapq.heappush(longest, (sum(map(len, texts)), number, problem))
        if len(longest) > _LONGEST:
            heapq.heappop(longest)
    return [*found.values(), *(problem for _, _, problem in longest)]
