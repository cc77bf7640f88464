"""Schemas of all requests and responses: requests are validated against them, and /openapi.json is made of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Json

Code = Annotated[str, Field(min_length=1, max_length=16)]
Texts = str | list[str]
MAX_HYPOTHESES = 16
MAX_TERMS = 1000  # of a glossary in a request
Form = Annotated[str, Field(min_length=1, max_length=200)]
RequestGlossary = Annotated[
    dict[Form, Form | Annotated[list[Form], Field(min_length=1, max_length=20)] | None],
    Field(
        max_length=MAX_TERMS,
        description="Terms: source term to its translation, a list of allowed forms, or null for do not translate.",
    ),
]


class RequestBody(BaseModel):
    """The body of a request; unknown fields are ignored, since clients of other servers send their own."""

    model_config = ConfigDict(extra="ignore", title=None)


class NativeRequest(RequestBody):
    """The body of a request to one of heedful's own routes; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", title=None)


class TranslateRequest(RequestBody):
    """LibreTranslate's request."""

    q: Annotated[Texts, Field(description="A text, or several.")]
    source: Annotated[Code, Field(description="Its language, or `auto`.")]
    target: Annotated[Code, Field(description="The language to translate into.")]
    format: Annotated[Literal["text", "html"], Field(description="With `html`, tags are kept.")] = "text"
    alternatives: Annotated[int, Field(ge=0, le=MAX_HYPOTHESES - 1, description="Number of other translations.")] = 0
    glossary: RequestGlossary = {}
    api_key: Annotated[str, Field(description="API key, if required and not sent as a header.")] = ""


class DetectedLanguage(BaseModel):
    """A possible language of a text, and the confidence of its translator in percent."""

    language: str
    confidence: float


class TranslateResponse(BaseModel):
    """LibreTranslate's response; lists if `q` is a list."""

    translatedText: Texts  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815


class DetectRequest(RequestBody):
    """A text whose language is to be detected among the source languages served."""

    q: str
    api_key: str = ""


class Language(BaseModel):
    """A source language and its target languages."""

    code: str
    name: str
    targets: list[str]


class TranslationsRequest(NativeRequest):
    """One text or several, with all options of translation."""

    text: Annotated[Texts, Field(description="A text, or several; each is translated sentence by sentence.")]
    model: Annotated[str | None, Field(description="Its name; default: by the languages, or the first.")] = None
    source: Code | None = None
    target: Code | None = None
    n_best: Annotated[int, Field(ge=1, le=MAX_HYPOTHESES, description="Number of translations per sentence.")] = 1
    beam: Annotated[int | None, Field(ge=1, le=MAX_HYPOTHESES, description="Beam size; 1 is greedy search.")] = None
    length_penalty: Annotated[float | None, Field(ge=0, le=10, description="Length penalty α (GNMT).")] = None
    max_length: Annotated[int | None, Field(ge=1, le=10_000, description="Maximum tokens per sentence.")] = None
    prefix: Annotated[str, Field(description="Text that the translation of every sentence must start with.")] = ""
    alignments: Annotated[bool, Field(description="Return alignments of words.")] = False
    attention: Annotated[bool, Field(description="Return the attention weights too; implies alignments.")] = False
    glossary: RequestGlossary = {}
    confidence: Annotated[
        bool, Field(description="Return the confidence of translations and words, if the model is calibrated.")
    ] = False
    api_key: str = ""


class AttentionWeights(BaseModel):
    """Cross-attention weights (target tokens x source tokens), averaged over the alignment heads."""

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
    warnings: list[str] = []
    confidence: float | None = None
    word_confidence: list[float] | None = None
    attention: list[AttentionWeights] | None = None


class TranslatedSentence(BaseModel):
    """A sentence, its character offsets in the text, and its n-best translations."""

    source: str
    start: int
    end: int
    translations: list[TranslationAlternative]


class TranslatedText(BaseModel):
    """The translation of a text, as a whole and sentence by sentence."""

    text: str
    sentences: list[TranslatedSentence]


class TranslationsResponse(BaseModel):
    """The model, its languages and the translations."""

    model: str
    source: str
    target: str
    translations: list[TranslatedText]


class FillMaskRequest(NativeRequest):
    """A text with masks, each written [MASK] or <mask>."""

    text: str
    model: str | None = None
    top: Annotated[int, Field(ge=1, le=50, description="Number of candidates per mask.")] = 5
    api_key: str = ""


class FillMaskCandidate(BaseModel):
    """A candidate token for a mask, and the text with it filled in."""

    token: str
    probability: float
    text: str


class FillMaskResponse(BaseModel):
    """The candidates for each mask, most probable first."""

    model: str
    blanks: list[list[FillMaskCandidate]]


class SummariesRequest(NativeRequest):
    """One document or several, with all options of summarization."""

    text: Annotated[Texts, Field(description="A document, or several.")]
    model: Annotated[str | None, Field(description="Its name; default: the first summarizer.")] = None
    beam: Annotated[int | None, Field(ge=1, le=MAX_HYPOTHESES, description="Beam size; 1 is greedy search.")] = None
    length_penalty: Annotated[float | None, Field(ge=0, le=10, description="Length penalty α (GNMT).")] = None
    min_length: Annotated[int | None, Field(ge=0, le=10_000, description="Minimum tokens of a summary.")] = None
    max_length: Annotated[int | None, Field(ge=1, le=10_000, description="Maximum tokens of a summary.")] = None
    no_repeat_ngram: Annotated[int | None, Field(ge=0, le=100, description="No n-gram of this length twice.")] = None
    api_key: str = ""


class SummariesResponse(BaseModel):
    """The summary of each document, and whether its end was not read."""

    model: str
    summaries: list[str]
    warnings: list[list[str]]


class ExplainRequest(NativeRequest):
    """A text to explain, and optionally an output to explain instead of the model's own."""

    text: str
    model: str | None = None
    target: str | None = None
    api_key: str = ""


class StreamOptions(RequestBody):
    """Whether a stream ends with the number of tokens."""

    include_usage: bool = False


class CompletionRequest(RequestBody):
    """OpenAI's completion request, with more sampling options."""

    model: str
    prompt: Annotated[Texts | None, Field(description="A text to continue, or several.")] = ""
    max_tokens: Annotated[int | None, Field(ge=1, le=4096)] = 16
    temperature: Annotated[float | None, Field(ge=0, le=10)] = 1.0
    top_p: Annotated[float | None, Field(gt=0, le=1)] = 1.0
    n: Annotated[int | None, Field(ge=1, le=MAX_HYPOTHESES)] = 1
    stop: Annotated[str | list[str] | None, Field(description="Stop before one of these texts; at most 4.")] = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63)] = None
    logprobs: Annotated[int | None, Field(ge=0, le=5)] = None
    echo: bool | None = False
    top_k: Annotated[int, Field(ge=0, le=2**31)] = 0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] = 1.0
    best_of: Annotated[int | None, Field(description="Must equal n.")] = None
    suffix: Annotated[str | None, Field(description="Not supported; leave it out.")] = None
    logit_bias: Annotated[dict[str, float] | None, Field(description="Not supported; leave it out.")] = None
    presence_penalty: Annotated[float | None, Field(description="Not supported; leave it out or 0.")] = 0.0
    frequency_penalty: Annotated[float | None, Field(description="Not supported; leave it out or 0.")] = 0.0
    api_key: str = ""


class TranscriptionRequest(RequestBody):
    """OpenAI's transcription request, a multipart form."""

    model: str | None = None
    file: Annotated[Any, Field(description="The recording: wav, flac, ogg or mp3.")] = None
    language: Annotated[str | None, Field(max_length=8, description="For multilingual models, such as de.")] = None
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = "json"
    stream: Annotated[bool, Field(description="Send the text of each window as it is finished.")] = False
    timestamp_granularities: Annotated[
        list[Literal["word", "segment"]],
        Field(
            alias="timestamp_granularities[]", description="Times of verbose_json: segment by default, word, or both."
        ),
    ] = []
    prompt: Annotated[str | None, Field(description="Ignored.")] = None
    temperature: Annotated[float | None, Field(ge=0, le=1, description="Ignored: the search is greedy.")] = None
    api_key: str = ""


class Transcription(BaseModel):
    """OpenAI's transcription."""

    text: str


class LogProbs(BaseModel):
    """OpenAI's log-probabilities of the tokens of a text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One completion of a prompt."""

    index: int
    text: str
    logprobs: LogProbs | None
    finish_reason: Literal["stop", "length"] | None


class Usage(BaseModel):
    """Numbers of prompt and completion tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    """OpenAI's completion response, or one event of a stream."""

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
    """All GPTs served."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class ServedModel(BaseModel):
    """A served model and its task: translate, summarize, write (a GPT), fill (a BERT) or transcribe (speech)."""

    name: str
    task: Literal["translate", "summarize", "write", "fill", "inspect", "transcribe", "loading"]
    source: str | None
    target: str | None
    parameters: int | None
    beam: int | None


class ServerStatus(BaseModel):
    """The status of the server."""

    status: str


class LibreTranslateError(BaseModel):
    """LibreTranslate's form of an error."""

    error: str


class OpenAIErrorFields(BaseModel):
    """The fields of an error in OpenAI's form."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """OpenAI's form of an error."""

    error: OpenAIErrorFields


class TranslateFileRequest(BaseModel):
    """A form with a file to translate."""

    file: bytes = Field(
        description="PO, XLIFF, TMX, HTML, Markdown, SRT, VTT, CSV, TSV, JSON or text, with its file name.",
        json_schema_extra={"format": "binary"},
    )
    source: str = Field("auto", max_length=16, description="Source language; auto takes the first that fits.")
    target: str = Field(max_length=16, description="Target language.")
    glossary: Json[RequestGlossary] = Field(default_factory=dict, description="Terms, as a JSON object.")
    api_key: str | None = Field(None, description="API key, if not sent as a header.")


class TranslatedFile(BaseModel):
    """Where the translated file can be downloaded for ten minutes."""

    translatedFileUrl: str  # noqa: N815


class FrontendSettings(BaseModel):
    """LibreTranslate's settings for front ends."""

    apiKeys: bool  # noqa: N815
    keyRequired: bool  # noqa: N815
    charLimit: int  # noqa: N815
    batchLimit: int  # noqa: N815
    frontendTimeout: int  # noqa: N815
    filesTranslation: bool  # noqa: N815
    supportedFilesFormat: list[str]  # noqa: N815
    suggestions: bool
    language: dict[str, Any]
