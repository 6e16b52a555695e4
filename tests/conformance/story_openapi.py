"""Stories about OpenAPI documents."""
