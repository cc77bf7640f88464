"""The HTTP routes by API: LibreTranslate's, OpenAI's and native ones, with their schemas and OpenAPI description."""
