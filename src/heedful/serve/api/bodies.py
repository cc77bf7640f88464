"""Requests and answers of all routes: what is checked, and what /openapi.json says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Code = Annotated[str, Field(min_length=1, max_length=16)]
Texts = str | list[str]
MOST_HYPOTHESES = 16


class Body(BaseModel):
    """A body of a request; fields that nobody knows are passed over, as other servers do."""

    model_config = ConfigDict(extra="ignore", title=None)


class TranslateBody(Body):
    """LibreTranslate's request."""

    q: Annotated[Texts, Field(description="A text, or several.")]
    source: Annotated[Code, Field(description="Its language, or `auto`.")]
    target: Annotated[Code, Field(description="The language to translate into.")]
    format: Annotated[Literal["text", "html"], Field(description="With `html`, tags stay in place.")] = "text"
    alternatives: Annotated[int, Field(ge=0, le=MOST_HYPOTHESES - 1, description="Other translations to give.")] = 0
    api_key: Annotated[str, Field(description="If keys are needed and no header carries one.")] = ""


class Detected(BaseModel):
    """A language that a text may be in, and how sure its translator is of what it makes of it, in percent."""

    language: str
    confidence: float


class TranslateAnswer(BaseModel):
    """LibreTranslate's answer; lists where a list was asked for."""

    translatedText: Texts  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detected | list[Detected] | None = None  # noqa: N815


class DetectBody(Body):
    """A text whose language is to be found among those that are translated from."""

    q: str
    api_key: str = ""


class Language(BaseModel):
    """A language that is translated from, and into which ones."""

    code: str
    name: str
    targets: list[str]


class TranslationsBody(Body):
    """A text, or several, and everything about its translation that may be asked for."""

    text: Annotated[Texts, Field(description="A text, or several; each is translated sentence by sentence.")]
    model: Annotated[str | None, Field(description="By name; else by the languages, else the first.")] = None
    source: Code | None = None
    target: Code | None = None
    n_best: Annotated[int, Field(ge=1, le=MOST_HYPOTHESES, description="Translations of each sentence.")] = 1
    beam: Annotated[int | None, Field(ge=1, le=MOST_HYPOTHESES, description="Hypotheses kept at each step.")] = None
    length_penalty: Annotated[float | None, Field(ge=0, le=10, description="Length penalty.")] = None
    max_length: Annotated[int | None, Field(ge=1, le=10_000, description="Most tokens of a sentence.")] = None
    prefix: Annotated[str, Field(description="What the translation of every sentence has to begin with.")] = ""
    alignments: Annotated[bool, Field(description="Link the words, as white space separates them.")] = False
    attention: Annotated[bool, Field(description="Give the attention that links are read off; implies them.")] = False
    api_key: str = ""


class AttentionWeights(BaseModel):
    """How much each output token attends to each source token, in the heads that follow the words."""

    source_tokens: list[str]
    target_tokens: list[str]
    weights: list[list[float]]


class TranslationAlternative(BaseModel):
    """One translation of a sentence."""

    text: str
    score: float
    log_prob: float
    tokens: list[str]
    token_log_probs: list[float]
    alignment: list[tuple[int, int]] | None = None
    attention: list[AttentionWeights] | None = None


class TranslatedSentence(BaseModel):
    """A sentence, where it stands in its text, and its translations, best first."""

    source: str
    start: int
    end: int
    translations: list[TranslationAlternative]


class TranslatedText(BaseModel):
    """A text: its translation as a whole and sentence by sentence."""

    text: str
    sentences: list[TranslatedSentence]


class TranslationsAnswer(BaseModel):
    """What a model made of the texts."""

    model: str
    source: str
    target: str
    translations: list[TranslatedText]


class FillBody(Body):
    """A text with blanks, each written [MASK] or <mask>."""

    text: str
    model: str | None = None
    top: Annotated[int, Field(ge=1, le=50, description="Candidates for each blank.")] = 5
    api_key: str = ""


class FillCandidate(BaseModel):
    """A token that may fill a blank, and the text with it."""

    token: str
    probability: float
    text: str


class FillAnswer(BaseModel):
    """The candidates for each blank, most probable first."""

    model: str
    blanks: list[list[FillCandidate]]


class LookBody(Body):
    """A text to look at inside a model, and an output to look at instead of the model's own."""

    text: str
    model: str | None = None
    target: str | None = None
    api_key: str = ""


class StreamOptions(Body):
    """Whether a stream ends with how many tokens there were."""

    include_usage: bool = False


class CompletionBody(Body):
    """OpenAI's request, and what our sampling has beyond it."""

    model: str
    prompt: Annotated[Texts | None, Field(description="A text to go on from, or several.")] = ""
    max_tokens: Annotated[int | None, Field(ge=1, le=4096)] = 16
    temperature: Annotated[float | None, Field(ge=0, le=10)] = 1.0
    top_p: Annotated[float | None, Field(gt=0, le=1)] = 1.0
    n: Annotated[int | None, Field(ge=1, le=MOST_HYPOTHESES)] = 1
    stop: Annotated[str | list[str] | None, Field(description="At most 4 texts to stop before.")] = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63)] = None
    logprobs: Annotated[int | None, Field(ge=0, le=5)] = None
    echo: bool | None = False
    top_k: Annotated[int, Field(ge=0, le=2**31)] = 0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] = 1.0
    best_of: Annotated[int | None, Field(description="Only as many as n.")] = None
    suffix: Annotated[str | None, Field(description="Not supported; leave it out.")] = None
    logit_bias: Annotated[dict[str, float] | None, Field(description="Not supported; leave it out.")] = None
    presence_penalty: Annotated[float | None, Field(description="Not supported; leave it out or 0.")] = 0.0
    frequency_penalty: Annotated[float | None, Field(description="Not supported; leave it out or 0.")] = 0.0
    api_key: str = ""


class LogProbs(BaseModel):
    """OpenAI's log-probabilities of the tokens of a text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One text that follows a prompt."""

    index: int
    text: str
    logprobs: LogProbs | None
    finish_reason: Literal["stop", "length"] | None


class Usage(BaseModel):
    """Tokens that were read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    """OpenAI's answer, or a piece of one in a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class ModelCard(BaseModel):
    """OpenAI's description of a model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "heedful"


class ModelCards(BaseModel):
    """All GPTs that are served."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class ServedModel(BaseModel):
    """A model that is served, and what it does: translate, write or fill."""

    name: str
    task: Literal["translate", "write", "fill", "loading"]
    source: str | None
    target: str | None
    parameters: int | None


class Status(BaseModel):
    """How the server is."""

    status: str


class TextProblem(BaseModel):
    """LibreTranslate's form of an error."""

    error: str


class ProblemFields(BaseModel):
    """What an error consists of in OpenAI's form."""

    message: str
    type: str
    param: str | None
    code: str | None


class Problem(BaseModel):
    """OpenAI's form of an error."""

    error: ProblemFields


class FrontendSettings(BaseModel):
    """LibreTranslate's description of what a front end may do."""

    apiKeys: bool  # noqa: N815
    keyRequired: bool  # noqa: N815
    charLimit: int  # noqa: N815
    batchLimit: int  # noqa: N815
    frontendTimeout: int  # noqa: N815
    filesTranslation: bool  # noqa: N815
    supportedFilesFormat: list[str]  # noqa: N815
    suggestions: bool
    language: dict[str, Any]
